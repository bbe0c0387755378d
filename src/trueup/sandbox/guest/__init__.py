"""What runs *inside* the sandbox, standard library only.

The directory is bound into the sandbox as a package of another name, so its modules import each other
relatively and nothing of trueup. Nothing here is trusted: a candidate shares its process and may rewrite any
of it. That is safe because this side holds no expected value and hands out no verdict; it can only say what
the candidate returned, and a candidate that forges that merely chooses its answers.
"""
