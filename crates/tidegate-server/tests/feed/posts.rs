//! Posts: what is taken, what a repeat answers, what is refused.

use serde_json::json;

use crate::client::Api;
use crate::{feed, follow, ids, invalid, publish, refusal};

#[tokio::test]
async fn a_post_from_its_publication_to_its_end() {
    let api = Api::start().await;
    let body = json!({"post_id": "p-1", "body": "The kettle is on."});
    let reply = api.send("POST", "/v1/users/ann/posts", body.clone()).await;
    assert_eq!((reply.status, reply.header("location")), (201, "/v1/posts/p-1"));
    let post = reply.json();
    assert_eq!((&post["post_id"], &post["author"], &post["version"]), (&json!("p-1"), &json!("ann"), &json!(1)));
    assert_eq!((&post["body"], &post["visibility"]), (&body["body"], &json!("public")));
    assert!(post["published_at"].as_str().is_some_and(|at| at.ends_with('Z')));
    assert!(post.get("edited_at").is_none() && post.get("repost_of").is_none(), "{post}");
    assert_eq!(api.get("/v1/posts/p-1").await.json(), post);

    let again = api.send("POST", "/v1/users/ann/posts", body).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, "true"));
    assert_eq!(again.json(), post);
    for other in [
        json!({"post_id": "p-1", "body": "Another."}),
        json!({"post_id": "p-1", "body": "The kettle is on.", "visibility": "private"}),
    ] {
        let reply = api.send("POST", "/v1/users/ann/posts", other).await;
        assert_eq!(refusal(&reply), (422, "idempotency-mismatch".to_owned(), vec![]));
    }

    let edited = api.send("PUT", "/v1/posts/p-1", json!({"body": "It was."})).await;
    assert_eq!((edited.status, &edited.json()["version"], &edited.json()["body"]), (200, &json!(2), &json!("It was.")));
    assert!(edited.json()["edited_at"].is_string());
    assert_eq!(api.send("PUT", "/v1/posts/p-1", json!({})).await.json(), edited.json(), "nothing to change");
    assert_eq!(feed(&api, "ann", "").await["items"][0]["post"], edited.json());

    assert_eq!(api.raw("DELETE", "/v1/posts/p-1", &[], b"").await.status, 204);
    for (method, path) in
        [("GET", "/v1/posts/p-1"), ("DELETE", "/v1/posts/p-1"), ("GET", "/v1/posts/%20"), ("GET", "/v1/posts/nope")]
    {
        let gone = api.raw(method, path, &[], b"").await;
        assert_eq!((gone.status, gone.code().as_str()), (404, "unknown-post"), "{method} {path}");
    }
    let gone = api.send("PUT", "/v1/posts/p-1", json!({"body": "x"})).await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "unknown-post"));
    assert_eq!(feed(&api, "ann", "").await, json!({"items": [], "next_cursor": null, "end": "complete"}));
    api.stop().await;
}

#[tokio::test]
async fn what_is_no_post_is_refused_with_every_fault() {
    let api = Api::start().await;
    for (body, pointers) in [
        (json!({}), &["/body"][..]),
        (json!({"body": null}), &["/body"]),
        (json!({"body": ""}), &["/body"]),
        (json!({"body": "x".repeat(16_385)}), &["/body"]),
        (json!({"body": "a\u{0}b"}), &["/body"]),
        (json!({"body": "x", "repost_of": "p"}), &["/repost_of"]),
        (json!({"body": "x", "post_id": "-"}), &["/post_id"]),
        (json!({"repost_of": ""}), &["/repost_of"]),
        (
            json!({"body": 1, "visibility": "secret", "published_at": "soon"}),
            &["/body", "/published_at", "/visibility"],
        ),
        (json!({"body": "x", "author": "bob"}), &["/author"]),
    ] {
        let reply = api.send("POST", "/v1/users/ann/posts", body.clone()).await;
        let mut have = refusal(&reply);
        have.2.sort();
        assert_eq!(have, invalid(pointers), "{body}");
    }
    let reply = api.send("POST", "/v1/users/%20/posts", json!({"body": "x"})).await;
    assert_eq!(refusal(&reply), invalid(&["/id"]));
    let longest = json!({"body": "é".repeat(8_192)});
    assert_eq!(publish(&api, "a%2Fb%C3%A9", longest.clone()).await["body"], longest["body"]);
    api.stop().await;
}

#[tokio::test]
async fn reposts_are_of_roots_and_once() {
    let api = Api::start().await;
    publish(&api, "ann", json!({"post_id": "root", "body": "x"})).await;
    let first = publish(&api, "bob", json!({"post_id": "b", "repost_of": "root"})).await;
    assert_eq!((&first["repost_of"], &first["body"]), (&json!("root"), &json!(null)));
    let of_repost = publish(&api, "cy", json!({"post_id": "c", "repost_of": "b"})).await;
    assert_eq!(of_repost["repost_of"], "root");
    let second = api.send("POST", "/v1/users/bob/posts", json!({"post_id": "b2", "repost_of": "root"})).await;
    assert_eq!((second.status, &second.json()["post_id"]), (200, &json!("b")));
    publish(&api, "ann", json!({"post_id": "own", "body": "x", "visibility": "private"})).await;
    for of in ["nope", "own"] {
        let reply = api.send("POST", "/v1/users/bob/posts", json!({"repost_of": of})).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "unknown-post"), "{of}");
    }
    let reply = api.send("PUT", "/v1/posts/b", json!({"body": "x"})).await;
    assert_eq!(refusal(&reply), invalid(&["/body"]));
    // One entry, whoever shows it; undone by one it stays for the other.
    for other in ["bob", "cy"] {
        follow(&api, "me", other).await;
    }
    let page = feed(&api, "me", "").await;
    assert_eq!((ids(&page), &page["items"][0]["reason_count"]), (vec!["root"], &json!(2)));
    let users: Vec<&str> =
        page["items"][0]["reasons"].as_array().unwrap().iter().map(|r| r["user"].as_str().unwrap()).collect();
    assert_eq!(users.len(), 2, "{page}");
    assert_eq!(api.raw("DELETE", "/v1/posts/c", &[], b"").await.status, 204);
    let page = feed(&api, "me", "").await;
    assert_eq!(page["items"][0]["reasons"], json!([{"user": "bob", "at": first["published_at"], "post_id": "b"}]));
    assert_eq!(api.raw("DELETE", "/v1/posts/root", &[], b"").await.status, 204);
    assert!(ids(&feed(&api, "me", "").await).is_empty());
    assert_eq!(api.get("/v1/posts/b").await.status, 200, "a repost of what is gone is still a post");
    api.stop().await;
}

#[tokio::test]
async fn the_future_is_now_and_the_past_is_where_it_was() {
    let api = Api::start().await;
    let now = publish(&api, "ann", json!({"post_id": "now", "body": "x"})).await;
    let future = json!({"post_id": "future", "body": "x", "published_at": "2999-01-01T00:00:00Z"});
    assert_eq!(publish(&api, "ann", future).await["published_at"], now["published_at"]);
    let old = json!({"post_id": "old", "body": "x", "published_at": "2001-01-01T00:00:00.500Z"});
    assert_eq!(publish(&api, "ann", old).await["published_at"], "2001-01-01T00:00:00.500Z");
    let page = feed(&api, "ann", "").await;
    assert_eq!((ids(&page), &page["end"]), (vec!["now", "future"], &json!("window")));
    api.stop().await;
}

#[tokio::test]
async fn a_batch_answers_each_post() {
    let api = Api::start().await;
    publish(&api, "ann", json!({"post_id": "there", "body": "x"})).await;
    let posts = json!({"posts": [
        {"author": "ann", "post_id": "a", "body": "x"},
        {"author": "bob", "repost_of": "a", "post_id": "b"},
        {"author": "ann", "post_id": "there", "body": "x"},
        {"author": "ann", "post_id": "there", "body": "y"},
        {"author": "ann", "body": ""},
        {"post_id": "c", "body": "x"},
        {"author": "bob", "repost_of": "nope"},
        {"author": "bob", "body": "without an id"},
    ]});
    let reply = api.send("POST", "/v1/posts:batch", posts).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let results = reply.json()["results"].as_array().cloned().expect("results");
    let status: Vec<u64> = results.iter().map(|result| result["status"].as_u64().expect("a status")).collect();
    assert_eq!(status, [201, 201, 200, 422, 422, 422, 404, 201], "{results:?}");
    assert_eq!(results[4]["problem"]["errors"][0]["pointer"], "/body");
    assert_eq!(results[5]["problem"]["errors"][0]["pointer"], "/author");
    assert_eq!(
        (&results[3]["problem"]["code"], &results[6]["problem"]["code"]),
        (&json!("idempotency-mismatch"), &json!("unknown-post"))
    );
    assert_eq!(results[7]["post"]["post_id"].as_str().map(str::len), Some(36));
    for (posts, pointer) in [(json!([]), "/posts"), (json!(vec![json!({"author": "a", "body": "x"}); 501]), "/posts")] {
        let reply = api.send("POST", "/v1/posts:batch", json!({"posts": posts})).await;
        assert_eq!(refusal(&reply), invalid(&[pointer]));
    }
    api.stop().await;
}
