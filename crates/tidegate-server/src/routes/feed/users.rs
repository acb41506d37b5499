//! Who follows and blocks whom.

use tidegate::feed::{Command, Followed, Outcome, UserId};

use super::{READ, SHOP, feed, sound, user};
use crate::call::Call;
use crate::openapi::AnswerDoc;
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::request::bodies_of_feed::{FOLLOW_BATCH, FOLLOW_ITEM};
use crate::request::json::Node;
use crate::request::query::{CURSOR, LIMIT};
use crate::request::{Faults, Fields, Pointer};
use crate::router::{BodyRule, MAX_BATCH_BODY, Route, Verb};
use crate::routes::run;
use crate::shape::feed::FollowShape;
use crate::shape::page;

/// The two users of the path, who are not one.
fn pair(call: &Call) -> Result<(UserId, UserId), Problem> {
    let mut faults = Faults::default();
    let one = user(call, &mut faults);
    let other = faults.take("/other", UserId::parse(&call.ids[1]));
    let pair = one.zip(other);
    if pair.as_ref().is_some_and(|(one, other)| one == other) {
        faults.add("/other", ONESELF);
    }
    sound(pair, faults)
}

const ONESELF: &str = "must be another user: nobody follows or blocks himself";

fn followed(outcome: Followed) -> Result<(), Problem> {
    match outcome {
        Followed::Since(_) => Ok(()),
        Followed::Oneself => Err(problem::invalid_at("/other", ONESELF)),
        Followed::Limit => {
            let detail = "The user follows as many users as the server's feed.max_followees allows; unfollow one first, or raise it.";
            Err(Problem::new(&c::LIMIT_REACHED, detail))
        }
    }
}

async fn follow(call: Call) -> Answer {
    let (one, other) = pair(&call)?;
    followed(feed(&call)?.follow(one, other, None).await?)?;
    Ok(reply::no_content())
}

async fn unfollow(call: Call) -> Answer {
    let (one, other) = pair(&call)?;
    feed(&call)?.unfollow(one, other).await?;
    Ok(reply::no_content())
}

async fn block(call: Call) -> Answer {
    let (one, other) = pair(&call)?;
    feed(&call)?.block(one, other).await?;
    Ok(reply::no_content())
}

async fn unblock(call: Call) -> Answer {
    let (one, other) = pair(&call)?;
    feed(&call)?.unblock(one, other).await?;
    Ok(reply::no_content())
}

async fn follows(call: Call) -> Answer {
    let (page, user) = {
        let mut query = call.query()?;
        let page = query.page();
        let mut faults = std::mem::take(&mut query.faults);
        let user = user(&call, &mut faults);
        (page, sound(user, faults)?)
    };
    let page = feed(&call)?.follows(&user, page).await?;
    Ok(page::list(&page, FollowShape::new))
}

async fn delete(call: Call) -> Answer {
    let mut faults = Faults::default();
    let user = user(&call, &mut faults);
    let user = sound(user, faults)?;
    feed(&call)?.delete_user(&user).await?;
    Ok(reply::no_content())
}

fn follow_item(item: &Node<'_>) -> Result<Command, Problem> {
    let (root, mut faults) = (Pointer::Root, Faults::default());
    let fields = Fields::open(item, &FOLLOW_ITEM, &root, &mut faults);
    let mut name = |field: &str| {
        let text = fields.text(field, &mut faults)?;
        faults.take(fields.at(field), UserId::parse(text))
    };
    let (user, other) = (name("user"), name("other"));
    let since = fields.instant("since", &mut faults);
    if user.is_some() && user == other {
        faults.add("/other", ONESELF);
    }
    let (user, other) = sound(user.zip(other), faults)?;
    Ok(Command::Follow { user, other, since })
}

async fn follow_many(call: Call) -> Answer {
    let items: Vec<Result<Command, Problem>> = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &FOLLOW_BATCH, &root, &mut faults);
        let follows = fields.list("follows", &mut faults).unwrap_or_default();
        faults.refuse()?;
        follows.iter().map(follow_item).collect()
    };
    let commands: Vec<Command> = items.iter().flatten().cloned().collect();
    let mut outcomes = feed(&call)?.batch(commands).await?.into_iter();
    let answers: Vec<Result<(), Problem>> = items
        .into_iter()
        .map(|item| {
            item?;
            match outcomes.next() {
                Some(Outcome::Followed(outcome)) => followed(outcome),
                _ => Err(Problem::of(&c::INTERNAL)),
            }
        })
        .collect();
    Ok(page::statuses(&answers))
}

pub(in crate::routes) static ROUTES: &[Route] = &[
    Route {
        tag: "feed",
        summary: "Follow a user",
        doc: "From the next page on, what the other published within the feed's window is in the feed. Repeating it changes nothing.",
        answers: &[AnswerDoc::nothing(204, "Followed, now or before.")],
        problems: &[&c::LIMIT_REACHED, &c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Put, "/v1/users/{id}/follows/{other}", "followUser", SHOP, run!(follow))
    },
    Route {
        tag: "feed",
        summary: "Unfollow a user",
        doc: "From the next page on; what others show again stays.",
        answers: &[AnswerDoc::nothing(204, "Not followed.")],
        problems: &[&c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Delete, "/v1/users/{id}/follows/{other}", "unfollowUser", SHOP, run!(unfollow))
    },
    Route {
        tag: "feed",
        summary: "Block a user",
        doc: "Hides the posts and reposts of each from the other; follows stay.",
        answers: &[AnswerDoc::nothing(204, "Blocked, now or before.")],
        problems: &[&c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Put, "/v1/users/{id}/blocks/{other}", "blockUser", SHOP, run!(block))
    },
    Route {
        tag: "feed",
        summary: "Unblock a user",
        doc: "A block by the other stays.",
        answers: &[AnswerDoc::nothing(204, "Not blocked by this user.")],
        problems: &[&c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Delete, "/v1/users/{id}/blocks/{other}", "unblockUser", SHOP, run!(unblock))
    },
    Route {
        tag: "feed",
        summary: "List whom a user follows",
        doc: "By name, byte for byte.",
        params: &[CURSOR, LIMIT],
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<FollowShape<'_>>("FollowPage"))],
        problems: &[&c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Get, "/v1/users/{id}/follows", "listFollows", READ, run!(follows))
    },
    Route {
        tag: "feed",
        summary: "Delete a user",
        doc: "Posts, follows and blocks both ways are gone when it answers; with many followers that takes as long as it takes. Repeating it is \
              harmless.",
        patient: true,
        answers: &[AnswerDoc::nothing(204, "Nothing is left of the user.")],
        problems: &[&c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Delete, "/v1/users/{id}", "deleteUser", SHOP, run!(delete))
    },
    Route {
        tag: "feed",
        summary: "Follow up to 5,000 users",
        doc: "In order, each standing alone: to load a community.",
        body: BodyRule::Json { shape: &FOLLOW_BATCH, max: MAX_BATCH_BODY, optional: false },
        answers: &[AnswerDoc::json(200, "One result a follow.", |s| s.statuses("FollowResults"))],
        problems: &[&c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Post, "/v1/follows:batch", "followUsers", SHOP, run!(follow_many))
    },
];
