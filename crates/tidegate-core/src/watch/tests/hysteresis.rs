//! Opening and closing take turns, whatever is seen and whenever the watch is started again.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::settings::RuleSettings;
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Used(u64),
    Silent,
    Restore,
    Replaced(u64),
    Pause(i64),
    Evict(u64),
    Status(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u64..1_200).prop_map(Step::Used),
        1 => Just(Step::Silent),
        1 => Just(Step::Restore),
        1 => (0_u64..10_000).prop_map(Step::Replaced),
        2 => (-20_000_i64..2_000_000).prop_map(Step::Pause),
        1 => (0_u64..100).prop_map(Step::Evict),
        1 => any::<bool>().prop_map(Step::Status),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn a_finding_opens_once_until_it_is_closed(steps in prop::collection::vec(step(), 1..120), samples in 1_u32..6, more in 0_u32..6, quiet in 0_u64..20_000) {
        let mut settings = Settings::new(Purpose::State);
        for rule in Rule::ALL {
            let one = RuleSettings { samples, of: samples + more, quiet_ms: quiet, ..rule.defaults() };
            settings.set(*rule, one).unwrap();
        }
        let mut scene = Scene::on(REDIS_7_0, settings.clone());
        scene.set(&[("maxmemory", "1048576000")]);
        let (mut open, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            let changes = match step {
                Step::Used(mib) => scene.set_number("used_memory", mib * MIB).look(),
                Step::Silent => scene.silent(Silence::Timeout, "x"),
                Step::Restore => {
                    scene.judge = Judge::restore(settings.clone(), &scene.judge.save()).unwrap();
                    scene.look()
                }
                Step::Replaced(uptime) => {
                    let run = format!("run{}", scene.now);
                    scene.set(&[("run_id", &run)]).set_number("uptime_in_seconds", uptime).look()
                }
                Step::Pause(ms) => {
                    scene.now += ms;
                    scene.look()
                }
                Step::Evict(keys) => scene.set_number("evicted_keys", keys).look(),
                Step::Status(ok) => scene.set(&[("rdb_last_bgsave_status", if ok { "ok" } else { "err" })]).look(),
            };
            for change in changes {
                let finding = change.finding();
                match &change {
                    Change::Opened(_) => {
                        prop_assert!(open.insert(finding.rule), "{finding:?} was open");
                        prop_assert!(finding.closed_at.is_none());
                        ids.insert(finding.id.clone());
                    }
                    Change::Closed(_) => {
                        prop_assert!(open.remove(&finding.rule), "{finding:?} was not open");
                        prop_assert!(ids.contains(&finding.id) && finding.closed_at.is_some());
                    }
                }
            }
            let told: BTreeSet<Rule> = scene.judge.open().map(|finding| finding.rule).collect();
            prop_assert_eq!(&told, &open);
        }
    }
}
