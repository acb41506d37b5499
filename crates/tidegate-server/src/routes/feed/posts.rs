//! Posts and reposts.

use http::{Response, StatusCode};
use tidegate::feed::{
    Body as PostBody, Command, Content, Edited, NewPost, Outcome, Post, PostEdit, PostId, Published, UserId, Visibility,
};

use super::{READ, SHOP, feed, sound, user};
use crate::call::Call;
use crate::openapi::AnswerDoc;
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer, Body};
use crate::request::bodies_of_feed::{EDIT_POST, PUBLISH, PUBLISH_BATCH, PUBLISH_ITEM};
use crate::request::json::Node;
use crate::request::{Faults, Fields, Pointer, path};
use crate::router::{BodyRule, MAX_BATCH_BODY, MAX_BODY, Route, Verb};
use crate::routes::run;
use crate::shape::feed::PostShape;
use crate::shape::page::{self, BatchItem};

fn unknown_post(id: &str) -> Problem {
    let detail = format!("There is no post {id:?}, or not everybody sees it; correct the id.");
    Problem::new(&c::UNKNOWN_POST, detail)
}

fn visibility(fields: &Fields<'_, '_, '_>, faults: &mut Faults) -> Option<Visibility> {
    Some(match fields.choice("visibility", faults)? {
        "private" => Visibility::Private,
        "hidden" => Visibility::Hidden,
        _ => Visibility::Public,
    })
}

fn body(fields: &Fields<'_, '_, '_>, faults: &mut Faults) -> Option<PostBody> {
    let text = fields.text("body", faults)?;
    faults.take(fields.at("body"), PostBody::parse(text))
}

/// The post that fields ask for.
fn new_post(author: Option<UserId>, fields: &Fields<'_, '_, '_>, mut faults: Faults) -> Result<NewPost, Problem> {
    let id = match fields.text("post_id", &mut faults) {
        Some(text) => faults.take(fields.at("post_id"), PostId::parse(text)),
        None => PostId::parse(&uuid::Uuid::now_v7().to_string()).ok(),
    };
    let content = match (fields.node("body").is_some(), fields.node("repost_of").is_some()) {
        (true, false) => body(fields, &mut faults).map(Content::Body),
        (false, true) => {
            let text = fields.text("repost_of", &mut faults);
            let of = text.and_then(|text| faults.take(fields.at("repost_of"), PostId::parse(text)));
            of.map(Content::Repost)
        }
        (true, true) => {
            faults.add(fields.at("repost_of"), "must not be sent beside body; send one of them");
            None
        }
        (false, false) => {
            faults.add(fields.at("body"), "is required, or repost_of in its place");
            None
        }
    };
    let published_at = fields.instant("published_at", &mut faults);
    let visibility = visibility(fields, &mut faults).unwrap_or_default();
    let (author, id, content) = sound(author.zip(id).zip(content).map(|((a, i), c)| (a, i, c)), faults)?;
    Ok(NewPost { id, author, content, published_at, visibility })
}

/// What became of a post: its status and it.
fn published(outcome: Published, new: &NewPost) -> Result<(u16, Post), Problem> {
    match outcome {
        Published::New(post) => Ok((201, post)),
        Published::Same(post) => Ok((200, post)),
        Published::Mismatch => {
            let detail = format!(
                "The post {:?} exists with another content, or existed and is still shown again by somebody; publish this one under an id of its own, or change that one with PUT.",
                new.id.as_str()
            );
            Err(Problem::new(&c::IDEMPOTENCY_MISMATCH, detail))
        }
        Published::UnknownRoot => match &new.content {
            Content::Repost(of) => Err(unknown_post(of.as_str())),
            Content::Body(_) => Err(Problem::of(&c::INTERNAL)),
        },
    }
}

fn answer(status: u16, post: &Post) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let response = reply::json(status, &PostShape::new(post));
    let response = reply::location(response, &format!("/v1/posts/{}", path::encode(post.id.as_str())));
    reply::replayed(response, status == StatusCode::OK)
}

async fn publish(call: Call) -> Answer {
    let new = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let author = user(&call, &mut faults);
        let fields = Fields::open(&node, &PUBLISH, &root, &mut faults);
        new_post(author, &fields, faults)?
    };
    let outcome = feed(&call)?.publish(new.clone()).await?;
    let (status, post) = published(outcome, &new)?;
    Ok(answer(status, &post))
}

fn batch_item(item: &Node<'_>) -> Result<NewPost, Problem> {
    let (root, mut faults) = (Pointer::Root, Faults::default());
    let fields = Fields::open(item, &PUBLISH_ITEM, &root, &mut faults);
    let author = fields.text("author", &mut faults);
    let author = author.and_then(|name| faults.take(fields.at("author"), UserId::parse(name)));
    new_post(author, &fields, faults)
}

async fn publish_many(call: Call) -> Answer {
    let posts: Vec<Result<NewPost, Problem>> = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &PUBLISH_BATCH, &root, &mut faults);
        let posts = fields.list("posts", &mut faults).unwrap_or_default();
        faults.refuse()?;
        posts.iter().map(batch_item).collect()
    };
    let commands: Vec<Command> = posts.iter().flatten().cloned().map(Command::Publish).collect();
    let mut outcomes = feed(&call)?.batch(commands).await?.into_iter();
    let answers: Vec<Result<(u16, Post), Problem>> = posts
        .into_iter()
        .map(|post| {
            let new = post?;
            match outcomes.next() {
                Some(Outcome::Published(outcome)) => published(outcome, &new),
                _ => Err(Problem::of(&c::INTERNAL)),
            }
        })
        .collect();
    let results = answers.iter().map(|answer| BatchItem {
        name: "post",
        answer: answer.as_ref().map(|(status, post)| (*status, PostShape::new(post))),
    });
    Ok(page::batch(results.collect()))
}

fn post_id(call: &Call) -> Result<PostId, Problem> {
    PostId::parse(call.id()).map_err(|_| unknown_post(call.id()))
}

async fn get(call: Call) -> Answer {
    let id = post_id(&call)?;
    match feed(&call)?.post(&id).await? {
        Some(post) => Ok(reply::json(StatusCode::OK, &PostShape::new(&post))),
        None => Err(unknown_post(call.id())),
    }
}

async fn edit(call: Call) -> Answer {
    let edit = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &EDIT_POST, &root, &mut faults);
        let edit = PostEdit { body: body(&fields, &mut faults), visibility: visibility(&fields, &mut faults) };
        faults.refuse()?;
        edit
    };
    match feed(&call)?.edit(post_id(&call)?, edit).await? {
        Edited::Done(post) => Ok(reply::json(StatusCode::OK, &PostShape::new(&post))),
        Edited::Unknown => Err(unknown_post(call.id())),
        Edited::NoBody => Err(problem::invalid_at("/body", "must be left out: the post is a repost, which has none")),
    }
}

async fn delete(call: Call) -> Answer {
    match feed(&call)?.delete(post_id(&call)?).await? {
        true => Ok(reply::no_content()),
        false => Err(unknown_post(call.id())),
    }
}

pub(in crate::routes) static ROUTES: &[Route] = &[
    Route {
        tag: "feed",
        summary: "Publish a post or a repost",
        doc: "One round trip to the store, however many follow. Repeating it with the same `post_id` and content answers with the post as \
              it is; a second repost of one root by one author answers the first.",
        body: BodyRule::Json { shape: &PUBLISH, max: MAX_BODY, optional: false },
        answers: &[
            AnswerDoc::json(201, "Published.", |s| s.of::<PostShape<'_>>()).with(&["Location"]),
            AnswerDoc::json(200, "Published before.", |s| s.of::<PostShape<'_>>())
                .with(&["Location", "Idempotent-Replayed"]),
        ],
        problems: &[&c::IDEMPOTENCY_MISMATCH, &c::UNKNOWN_POST, &c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Post, "/v1/users/{id}/posts", "publishPost", SHOP, run!(publish))
    },
    Route {
        tag: "feed",
        summary: "Publish up to 500 posts",
        doc: "In order, each standing alone; results come in the order of the request, and the pointers of a refused one start at the post.",
        body: BodyRule::Json { shape: &PUBLISH_BATCH, max: MAX_BATCH_BODY, optional: false },
        answers: &[AnswerDoc::json(200, "One result a post.", |s| s.batch::<PostShape<'_>>("PostResults", "post"))],
        problems: &[&c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Post, "/v1/posts:batch", "publishPosts", SHOP, run!(publish_many))
    },
    Route {
        tag: "feed",
        summary: "Read a post",
        doc: "Also one that not everybody sees: the caller decides whom to show it.",
        answers: &[AnswerDoc::json(200, "The post as it is now.", |s| s.of::<PostShape<'_>>())],
        problems: &[&c::UNKNOWN_POST, &c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Get, "/v1/posts/{id}", "getPost", READ, run!(get))
    },
    Route {
        tag: "feed",
        summary: "Change a post",
        doc: "Its body, or who sees it.",
        body: BodyRule::Json { shape: &EDIT_POST, max: MAX_BODY, optional: false },
        answers: &[AnswerDoc::json(200, "The post as it is now.", |s| s.of::<PostShape<'_>>())],
        problems: &[&c::UNKNOWN_POST, &c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Put, "/v1/posts/{id}", "editPost", SHOP, run!(edit))
    },
    Route {
        tag: "feed",
        summary: "Delete a post",
        doc: "A root leaves every page; a repost takes only its reason away.",
        answers: &[AnswerDoc::nothing(204, "It is deleted.")],
        problems: &[&c::UNKNOWN_POST, &c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Delete, "/v1/posts/{id}", "deletePost", SHOP, run!(delete))
    },
];
