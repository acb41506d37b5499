//! Replicas, Sentinel, Cluster.

use tidegate_conformance::servers::{Cluster, Sentinel};
use tidegate_core::doctor::Topology;

use super::*;

const LIMITS: &str = "client-output-buffer-limit";

#[tokio::test]
async fn a_master_and_its_replicas() {
    for engine in ENGINES {
        let [master, first, second] = [(); 3].map(|()| Redis::start_with(Setup::default().engine(engine)));
        let set = |name: &str, value: &str| master.tell(&["CONFIG", "SET", name, value]);
        let found = async |url: &str, check: Check| of(&look(url, Purpose::State).await, check).cloned();
        let url = master.url();
        assert!(found(&url, Check::NoReplica).await.is_some());
        set("repl-backlog-size", "1mb");
        for check in [Check::Backlog, Check::MinReplicas, Check::ReplicaBuffer] {
            assert_eq!(found(&url, check).await, None, "without replicas it is no matter");
        }
        follow(&master, &first).await;
        assert_eq!(found(&url, Check::NoReplica).await, None);
        assert_eq!(found(&url, Check::MinReplicas).await.unwrap().severity, Severity::Info);
        follow(&master, &second).await;
        let least = found(&url, Check::MinReplicas).await.unwrap();
        assert_eq!((least.severity, least.changes.len()), (Severity::Warning, 1));
        set("min-replicas-to-write", "1");
        assert_eq!(found(&url, Check::MinReplicas).await, None);
        assert!(found(&url, Check::Backlog).await.unwrap().fix.contains("repl-backlog-size 67108864"));
        set("repl-backlog-size", "64mb");
        assert_eq!(found(&url, Check::Backlog).await, None);
        for (limits, is_bad) in [("slave 1mb 1mb 60", true), ("slave 0 0 0", true), ("slave 256mb 64mb 60", false)] {
            set(LIMITS, limits);
            assert_eq!(found(&url, Check::ReplicaBuffer).await.is_some(), is_bad, "{limits}");
        }
        first.tell(&["CONFIG", "SET", "replica-read-only", "no"]);
        assert!(found(&first.url(), Check::ReplicaWritable).await.is_some());
        // O22: what the master has no longer. A replica that takes writes stands for one that was not told.
        let script = "for i = 1, 2000 do redis.call('SET', 'old:' .. i, 'x') end";
        first.tell(&["EVAL", script, "0"]);
        let keys = found(&url, Check::ReplicaKeys).await.unwrap();
        assert_eq!(keys.evidence["replica"], format!("127.0.0.1:{}", first.port()));
        first.tell(&["FLUSHALL"]);
        first.tell(&["CONFIG", "SET", "replica-read-only", "yes"]);
        assert_eq!(found(&url, Check::ReplicaKeys).await, None);
        assert_eq!(found(&first.url(), Check::ReplicaWritable).await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_sentinel() {
    for engine in ENGINES {
        let set = Sentinel::start(engine);
        let url = set.url();
        let all = seen(&url, Purpose::State).await;
        let Topology::Sentinel(sentinels) = &all.topology else { panic!("{:?}", all.topology) };
        let numbers = (sentinels.quorum, sentinels.known, sentinels.asked, sentinels.answered);
        assert_eq!(numbers, (Some(2), Some(3), 3, 3));
        assert_eq!(all.nodes.len(), 2);
        let report = judge(&all);
        assert_eq!(of(&report, Check::Sentinels), None);
        // What one of the two has and the other has not is told of that one.
        set.servers[1].tell(&["CONFIG", "SET", "tcp-keepalive", "0"]);
        let report = look(&url, Purpose::State).await;
        let address = format!("127.0.0.1:{}", set.servers[1].port());
        assert_eq!(of(&report, Check::Keepalive).unwrap().address, address);
        // A quorum that cannot be had.
        let sentinel = url.split("//").nth(1).unwrap().split(',').next().unwrap();
        let ask = |value: &str| {
            let (host, port) = sentinel.rsplit_once(':').unwrap();
            let done = std::process::Command::new("redis-cli")
                .args(["-h", host, "-p", port, "SENTINEL", "SET", "shop", "quorum", value])
                .output()
                .unwrap();
            assert!(String::from_utf8_lossy(&done.stdout).contains("OK"), "{done:?}");
        };
        for (quorum, want) in [("4", Some(Severity::Critical)), ("1", Some(Severity::Warning)), ("2", None)] {
            ask(quorum);
            let report = look(&url, Purpose::State).await;
            assert_eq!(of(&report, Check::Sentinels).map(|found| found.severity), want, "{quorum}");
        }
        set.servers[1].kill();
        let report = look(&url, Purpose::State).await;
        assert_eq!(of(&report, Check::Unreachable).unwrap().address, address);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster() {
    for engine in ENGINES {
        let cluster = Cluster::start(engine, true);
        let url = cluster.url();
        let first = cluster.nodes[0].url().replace("redis://", "redis-cluster://");
        let all = seen(&first, Purpose::Cache).await;
        assert_eq!((all.nodes.len(), all.silent.len()), (6, 0), "one names all");
        let report = judge(&all);
        for check in
            [Check::ClusterBroken, Check::ClusterUneven, Check::ClusterCoverage, Check::NoReplica, Check::Unreachable]
        {
            assert_eq!(of(&report, check), None, "{engine:?}");
        }
        for check in [Check::ClusterBroken, Check::OwnKeysEvictable, Check::KeysWithoutTtl] {
            assert!(report.unknown.iter().all(|unknown| unknown.check != check), "{:?}", report.unknown);
        }
        cluster.nodes[4].tell(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
        let report = look(&url, Purpose::Cache).await;
        let found = of(&report, Check::ClusterCoverage).unwrap();
        assert_eq!(found.address, format!("127.0.0.1:{}", cluster.nodes[4].port()));
        assert_eq!(of(&look(&url, Purpose::State).await, Check::ClusterCoverage), None);
        // A master and its replica are gone.
        cluster.nodes[2].kill();
        cluster.nodes[5].kill();
        until("the Cluster to notice", || cluster.nodes[0].tell(&["CLUSTER", "INFO"]).contains("cluster_slots_fail:5"))
            .await;
        let report = look(&first, Purpose::State).await;
        let broken = of(&report, Check::ClusterBroken).unwrap();
        assert!(broken.cause.contains("of 16384 slots") && broken.severity == Severity::Critical, "{broken:#?}");
        let silent: Vec<_> =
            report.findings.iter().filter(|finding| finding.check == Check::Unreachable).map(|f| f.severity).collect();
        assert_eq!(silent.len(), 2);
        assert!(silent.contains(&Severity::Critical), "{silent:?}");
    }
}

/// Slots that lie on one server more than on another; what a user may not see of a Cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uneven_cluster() {
    let cluster = Cluster::start(Engine::default(), false);
    let url = cluster.url();
    let report = look(&url, Purpose::State).await;
    assert_eq!(of(&report, Check::NoReplica).unwrap().severity, Severity::Warning);
    assert_eq!(of(&report, Check::ClusterUneven), None);
    for slot in 0..2_000 {
        let id = cluster.nodes[2].tell(&["CLUSTER", "MYID"]);
        for node in [2, 0, 1] {
            cluster.nodes[node].tell(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
        }
    }
    let report = look(&url, Purpose::State).await;
    let uneven = of(&report, Check::ClusterUneven).unwrap();
    assert_eq!(uneven.evidence["slots"].as_array().unwrap().len(), 3, "{uneven:#?}");
    for node in &cluster.nodes {
        node.tell(&["ACL", "SETUSER", "looker", "on", ">word", "+info", "+ping"]);
    }
    let report = look(&url.replace("://", "://looker:word@"), Purpose::State).await;
    let unknown = report.unknown.iter().find(|unknown| unknown.check == Check::ClusterBroken).unwrap();
    assert!(unknown.why.contains("CLUSTER NODES is not permitted"), "{unknown:?}");
    assert_eq!(of(&report, Check::ClusterBroken), None);
}
