//! What a watch that is started again, or that did not look for a while, makes of what was open.

use super::super::{BadState, RuleSettings};
use super::*;

/// One whose memory is full, and what that opened.
fn full() -> (Scene, Finding) {
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[("maxmemory", &(1_000 * MIB).to_string())]).set_number("used_memory", 1_000 * MIB);
    let changes = scene.looks(10);
    let finding = changes.iter().map(Change::finding).find(|finding| finding.rule == Rule::FullNoeviction).unwrap();
    (scene, finding.clone())
}

fn restored(scene: &Scene) -> Judge {
    Judge::restore(Settings::new(Purpose::State), &scene.judge.save()).unwrap()
}

#[test]
fn what_was_well_before_a_gap_must_be_well_again() {
    let is_over = |changes: &[Change]| closed(changes).contains(&Rule::FullNoeviction);
    for is_started_again in [true, false] {
        let (mut scene, _) = full();
        scene.set_number("used_memory", 100 * MIB);
        assert!(!is_over(&scene.looks(16)));
        if is_started_again {
            scene.judge = restored(&scene);
        }
        // Who knows what was meanwhile.
        scene.now += 25 * S;
        assert!(!is_over(&scene.looks(29)), "{is_started_again}");
        assert!(is_over(&scene.looks(3)), "{is_started_again}");
    }
}

#[test]
fn a_quick_restart_and_rare_looks_are_no_gap() {
    let (mut scene, _) = full();
    scene.set_number("used_memory", 100 * MIB);
    scene.looks(16);
    scene.judge = restored(&scene);
    scene.now += 3 * S;
    assert!(closed(&scene.looks(13)).contains(&Rule::FullNoeviction));

    let (mut scene, _) = full();
    scene.judge = restored(&scene).looking_every(60 * S);
    scene.set_number("used_memory", 100 * MIB);
    let mut changes = Vec::new();
    for _ in 0..2 {
        changes.extend(scene.look());
        scene.now += 59 * S;
    }
    assert!(closed(&changes).contains(&Rule::FullNoeviction));
}

#[test]
fn what_is_open_of_a_rule_that_is_switched_off_is_closed() {
    let (scene, finding) = full();
    let mut settings = Settings::new(Purpose::State);
    settings.set(finding.rule, RuleSettings { off: true, ..finding.rule.defaults() }).unwrap();
    let mut judge = Judge::restore(settings, &scene.judge.save()).unwrap();
    let before = judge.open().count();
    let at = Millis(scene.now);
    assert_eq!(judge.close_off(at), [Change::Closed(Finding { closed_at: Some(at), ..finding })]);
    assert_eq!(judge.open().count(), before - 1);
    assert!(judge.close_off(at).is_empty());
}

#[test]
fn what_is_open_and_cannot_be_read_is_damage_but_not_the_rule_of_a_newer_release() {
    let (scene, finding) = full();
    let text = scene.judge.save();
    let damaged = text.replacen("\"severity\":\"critical\"", "\"severity\":\"BROKEN\"", 1);
    assert_ne!(damaged, text);
    let BadState(why) = Judge::restore(Settings::new(Purpose::State), &damaged).err().unwrap();
    assert!(why.contains("10.0.0.7:6379") && why.contains("BROKEN"), "{why}");
    let newer = text.replace("\"rule\":\"full-noeviction\"", "\"rule\":\"of-tomorrow\"");
    assert_ne!(newer, text);
    let judge = Judge::restore(Settings::new(Purpose::State), &newer).unwrap();
    assert!(judge.open().all(|open| open.id != finding.id));
}
