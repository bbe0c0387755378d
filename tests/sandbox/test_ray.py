"""The sandbox on a Ray cluster of two node processes on this machine."""

import threading
import time
import warnings

import pytest

pytestmark = [
    pytest.mark.slow,
    # ray's own threads and files are not ours to tidy
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        options = {"num_cpus": 1, "object_store_memory": 100 << 20}
        cluster = Cluster(initialize_head=True, head_node_args=options)
        second = cluster.add_node(**options)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, namespace="trueup", log_to_driver=False)
        yield ray, cluster, second
        ray.shutdown()
        cluster.shutdown()


def work(n: int) -> list[dict]:
    source = "import time\ntime.sleep(0.02)\ndef solve(x): return x"
    return [{"source": source, "inputs": [[i]], "expected": [i % 50]} for i in range(n)]


def test_killing_an_actor_and_then_a_node_loses_nothing_and_pays_nothing(cluster):
    from trueup.sandbox import Sandbox

    ray, nodes, second = cluster
    right = [1.0 if i < 50 else 0.0 for i in range(150)]
    with Sandbox(slots=100, backend="ray", slots_per_node=1) as box:
        assert [g.score.value for g in box.grade_many(work(150))] == right
        handles = list(box._pool._handles.values())
        assert len({handle.node for handle in handles}) == 2

        timer = threading.Timer(0.5, ray.kill, (handles[0].actor,))
        timer.start()
        assert [g.score.value for g in box.grade_many(work(150))] == right
        timer.join()

        timer = threading.Timer(0.5, nodes.remove_node, (second,))
        timer.start()
        assert [g.score.value for g in box.grade_many(work(150))] == right
        timer.join()
        for _ in range(100):
            if sum(node["Alive"] for node in ray.nodes()) == 1:
                break
            time.sleep(0.2)
        assert [g.score.value for g in box.grade_many(work(20))] == right[:20]
        box._pool.stop_actors()
