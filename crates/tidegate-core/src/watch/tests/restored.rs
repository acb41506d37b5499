//! What a watch that is started again, or that did not look for a while, makes of what was open.

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
