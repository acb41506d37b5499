//! Random commands, each answer, change and row as the table's.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::workload::Entropy;

const USERS: [&str; 9] = ["ann", "Ann", "bob", "\u{e9}va", "e\u{301}va", "c/d", "\u{1f4a5}", "dee", "x y"];
const POSTS: u64 = 48;

/// Rounds of the random cases; more with `./scripts/test --long`.
fn rounds() -> u64 {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 200 } else { 3 }
}

fn name(dice: &mut StdRng) -> UserId {
    user(USERS[dice.below(USERS.len() as u64) as usize])
}

fn id(dice: &mut StdRng) -> PostId {
    let n = dice.below(POSTS);
    post(&if n.is_multiple_of(5) { format!("P{n}") } else { format!("p{n}") })
}

/// Any command, about few users and posts.
pub(super) fn command(dice: &mut StdRng, now: Millis) -> Command {
    let visibility = match dice.below(6) {
        0 => Visibility::Private,
        1 => Visibility::Hidden,
        _ => Visibility::Public,
    };
    match dice.below(16) {
        0..=6 => {
            let (author, post) = (name(dice), id(dice));
            let at = match dice.below(5) {
                0 => None,
                1 => Some(now.plus(-(dice.below(5) as i64))),
                2 => Some(now.plus(40_000)),
                _ => Some(now.plus(-(dice.below(2 * WINDOW_MS as u64) as i64))),
            };
            let new = text(&author, &post, ["x", "y", "\u{e9} z"][dice.below(3) as usize], at);
            let content = if dice.below(5) < 2 { Content::Repost(id(dice)) } else { new.content.clone() };
            Command::Publish(NewPost { content, visibility, ..new })
        }
        7 | 8 => {
            let body = (dice.below(2) == 0).then(|| Body::parse(["q", "r"][dice.below(2) as usize]).expect("a body"));
            Command::Edit(id(dice), PostEdit { body, visibility: (dice.below(2) == 0).then_some(visibility) })
        }
        9 | 10 => Command::Delete(id(dice)),
        11 | 12 => {
            let since = (dice.below(3) == 0).then(|| now.plus(dice.below(100) as i64 - 50));
            Command::Follow { user: name(dice), other: name(dice), since }
        }
        13 => Command::Unfollow(name(dice), name(dice)),
        14 => Command::Block(name(dice), name(dice)),
        _ => Command::Unblock(name(dice), name(dice)),
    }
}

/// Random colliding commands: every outcome, change, entry of the outbox and row as the table's.
pub async fn random_batches_agree_with_the_table(open: Open<'_>) {
    let mut last = None;
    for seed in 0..rounds() {
        let mut twin = Twin::following(open, 4).await;
        let mut dice = StdRng::seed_from_u64(seed);
        for step in 0..80 {
            let now = twin.now();
            let batch = (0..1 + dice.below(20)).map(|_| command(&mut dice, now)).collect();
            twin.commit(batch).await;
            if dice.random_bool(0.1) {
                twin.delete_user(&name(&mut dice)).await;
            }
            if step == 40 {
                twin.compare().await;
            }
            twin.advance(dice.below(3) as i64 * 700).await;
        }
        twin.compare().await;
        twin.ledger.close().await.expect("it closes");
        // A server that its ledgers share goes on from round to round.
        last = Some(twin);
    }
    drop(last);
}
