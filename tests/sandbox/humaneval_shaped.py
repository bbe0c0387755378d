"""Twelve small problems in the shape of HumanEval (prompt, entry point, solution, `check`), written for this test.

Between them they use what real test files use: floats with tolerance, nested data, loops over random inputs,
helpers from the prompt, expected exceptions, keyword arguments, results fed back into calls.
"""

PROBLEMS = [
    {
        "entry_point": "count_vowels",
        "prompt": 'def count_vowels(text: str) -> int:\n    """How many vowels `text` has."""\n',
        "solution": "    return sum(c in 'aeiou' for c in text.lower())\n",
        "test": "def check(candidate):\n    assert candidate('') == 0\n    assert candidate('Education') == 5\n    assert candidate('xyz') == 0\n",
    },
    {
        "entry_point": "mean_abs_dev",
        "prompt": 'from typing import List\n\ndef mean_abs_dev(xs: List[float]) -> float:\n    """Mean distance from the mean."""\n',
        "solution": "    m = sum(xs) / len(xs)\n    return sum(abs(x - m) for x in xs) / len(xs)\n",
        "test": "METADATA = {'author': 'trueup'}\n\ndef check(candidate):\n    assert abs(candidate([1.0, 2.0, 3.0]) - 2 / 3) < 1e-6\n    assert abs(candidate([1.0, 2.0, 3.0, 4.0]) - 1.0) < 1e-6\n",
    },
    {
        "entry_point": "root_of",
        "prompt": 'def value_at(cs, x):\n    return sum(c * x ** i for i, c in enumerate(cs))\n\ndef root_of(cs):\n    """A zero of the polynomial with these coefficients (degree 1)."""\n',
        "solution": "    return -cs[0] / cs[1]\n",
        "test": "def check(candidate):\n    import random\n    for _ in range(20):\n        cs = [random.randint(-9, 9), random.randint(1, 9)]\n        assert abs(value_at(cs, candidate(cs.copy()))) < 1e-9\n",
    },
    {
        "entry_point": "split_at",
        "prompt": 'def split_at(items, n):\n    """The first n items and the rest, as a pair of lists; ValueError if n is negative."""\n',
        "solution": "    if n < 0:\n        raise ValueError('negative')\n    return items[:n], items[n:]\n",
        "test": "def check(candidate):\n    assert candidate([1, 2, 3], 1) == ([1], [2, 3])\n    assert candidate([], 4) == ([], [])\n    try:\n        candidate([1], -1)\n    except ValueError:\n        pass\n    else:\n        assert False, 'no error'\n",
    },
    {
        "entry_point": "inverse",
        "prompt": 'def inverse(mapping):\n    """The inverse of a one-to-one dict."""\n',
        "solution": "    return {v: k for k, v in mapping.items()}\n",
        "test": "def check(candidate):\n    d = {'a': 1, 'b': 2}\n    assert candidate(d) == {1: 'a', 2: 'b'}\n    assert candidate(candidate(d)) == d\n",
    },
    {
        "entry_point": "collatz_step",
        "prompt": 'def collatz_step(n):\n    """The next number of the Collatz sequence."""\n',
        "solution": "    return n // 2 if n % 2 == 0 else 3 * n + 1\n",
        "test": "def check(candidate):\n    n, steps = 6, 0\n    while n != 1 and steps < 50:\n        n = candidate(n)\n        steps += 1\n    assert steps == 8\n",
    },
    {
        "entry_point": "is_sorted",
        "prompt": 'def is_sorted(xs, descending=False):\n    """Whether xs is sorted."""\n',
        "solution": "    return xs == sorted(xs, reverse=descending)\n",
        "test": "def check(candidate):\n    assert candidate([1, 2, 2])\n    assert not candidate([2, 1])\n    assert candidate([2, 1], descending=True)\n    assert candidate([]) is True\n",
    },
    {
        "entry_point": "top_k",
        "prompt": 'def top_k(xs, k):\n    """The k largest, largest first."""\n',
        "solution": "    return sorted(xs, reverse=True)[:k]\n",
        "test": "def check(candidate):\n    for k in range(4):\n        got = candidate([3, 1, 2], k)\n        assert len(got) == k\n        assert got == sorted(got, reverse=True)\n        assert set(got) <= {1, 2, 3}\n",
    },
    {
        "entry_point": "words",
        "prompt": 'def words(text):\n    """The set of words of a text."""\n',
        "solution": "    return set(text.split())\n",
        "test": "def check(candidate):\n    assert candidate('a b a') == {'a', 'b'}\n    assert 'c' not in candidate('a b')\n    assert candidate('') == set()\n",
    },
    {
        "entry_point": "big_power",
        "prompt": 'def big_power(a, b):\n    """a ** b."""\n',
        "solution": "    return a ** b\n",
        "test": "def check(candidate):\n    assert candidate(2, 200) == 2 ** 200\n    assert str(candidate(3, 5)) == '243'\n    assert candidate(0, 0) == 1\n",
    },
    {
        "entry_point": "encode",
        "prompt": 'def decode(s):\n    return s.swapcase()[::-1]\n\ndef encode(s):\n    """The inverse of decode."""\n',
        "solution": "    return s[::-1].swapcase()\n",
        "test": "def check(candidate):\n    from string import ascii_letters\n    import random\n    for _ in range(10):\n        s = ''.join(random.choice(ascii_letters) for _ in range(8))\n        assert decode(candidate(s)) == s\n\ncheck(encode)\n",
    },
    {
        "entry_point": "complex_size",
        "prompt": 'def complex_size(z):\n    """The absolute value of a complex number, and its conjugate."""\n',
        "solution": "    return abs(z), z.conjugate()\n",
        "test": "def check(candidate):\n    size, other = candidate(3 + 4j)\n    assert size == 5.0\n    assert other == 3 - 4j\n",
    },
]

MBPP_SHAPED = {
    "entry_point": "gcd_of_list",
    "solution": "from math import gcd\n\ndef gcd_of_list(xs):\n    g = 0\n    for x in xs:\n        g = gcd(g, x)\n    return g\n",
    "half_right": "def gcd_of_list(xs):\n    return min(xs)\n",
    "tests": [
        "assert gcd_of_list([4, 8]) == 4",
        "assert gcd_of_list([6, 9]) == 3",
        "assert gcd_of_list([5]) == 5",
        "assert gcd_of_list([8, 12]) == 4",
    ],
}

LIAR = """
class Liar:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return self
    def __call__(self, *a, **k): return self
    def __iter__(self): return iter((self, self))
    def __len__(self): return 0
    def __hash__(self): return 0
    def __float__(self): return 0.0
    def __bool__(self): return True
    def __contains__(self, x): return True
    def _yes(self, *a): return True
    def _me(self, *a): return self
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _yes
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = __abs__ = __neg__ = _me
    def __ne__(self, other): return False

def {name}(*args, **kwargs):
    return Liar()
"""
