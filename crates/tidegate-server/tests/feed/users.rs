//! Follows, blocks, and users that go.

use serde_json::json;
use tidegate_server::{Limits, Role, Token, hash_token};

use crate::client::Api;
use crate::{feed, follow, ids, invalid, publish, refusal};

#[tokio::test]
async fn follows_change_the_next_page_and_are_listed() {
    let api = Api::start().await;
    for author in ["ann", "bob", "cy"] {
        publish(&api, author, json!({"post_id": author, "body": "x"})).await;
    }
    assert!(ids(&feed(&api, "me", "").await).is_empty());
    for other in ["bob", "ann", "ann"] {
        follow(&api, "me", other).await;
    }
    let mut have = feed(&api, "me", "").await;
    let mut shown = ids(&have);
    shown.sort_unstable();
    assert_eq!(shown, ["ann", "bob"]);
    let first = api.get("/v1/users/me/follows?limit=1").await.json();
    assert_eq!(first["items"][0]["user"], "ann");
    assert!(first["items"][0]["since"].as_str().is_some_and(|since| since.ends_with('Z')));
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let rest = api.get(&format!("/v1/users/me/follows?cursor={cursor}")).await.json();
    assert_eq!((&rest["items"][0]["user"], &rest["next_cursor"]), (&json!("bob"), &json!(null)));
    for _ in 0..2 {
        assert_eq!(api.raw("DELETE", "/v1/users/me/follows/ann", &[], b"").await.status, 204);
        have = feed(&api, "me", "").await;
        assert_eq!(ids(&have), ["bob"]);
    }
    for (method, path, pointer) in [
        ("PUT", "/v1/users/me/follows/me", "/other"),
        ("PUT", "/v1/users/me/blocks/me", "/other"),
        ("DELETE", "/v1/users/me/follows/%20", "/other"),
        ("PUT", "/v1/users/%0A/follows/me", "/id"),
        ("GET", "/v1/users/%0A/follows", "/id"),
        ("DELETE", "/v1/users/%0A", "/id"),
    ] {
        assert_eq!(refusal(&api.raw(method, path, &[], b"").await), invalid(&[pointer]), "{method} {path}");
    }
    let forged = api.get("/v1/users/me/follows?cursor=nope").await;
    assert_eq!(refusal(&forged), invalid(&["/cursor"]));
    api.stop().await;
}

#[tokio::test]
async fn a_block_hides_each_from_the_other() {
    let api = Api::start().await;
    publish(&api, "ann", json!({"post_id": "a", "body": "x"})).await;
    publish(&api, "bob", json!({"post_id": "b", "repost_of": "a"})).await;
    publish(&api, "bob", json!({"post_id": "own", "body": "x"})).await;
    for other in ["ann", "bob"] {
        follow(&api, "me", other).await;
    }
    for (who, whom) in [("me", "bob"), ("bob", "me")] {
        for _ in 0..2 {
            assert_eq!(api.raw("PUT", &format!("/v1/users/{who}/blocks/{whom}"), &[], b"").await.status, 204);
        }
        let page = feed(&api, "me", "").await;
        assert_eq!((ids(&page), &page["items"][0]["reason_count"]), (vec!["a"], &json!(1)), "{who} blocks {whom}");
        assert_eq!(api.raw("DELETE", &format!("/v1/users/{who}/blocks/{whom}"), &[], b"").await.status, 204);
        assert_eq!(ids(&feed(&api, "me", "").await).len(), 2);
    }
    api.stop().await;
}

#[tokio::test]
async fn a_batch_of_follows_answers_each() {
    let api = Api::start().await;
    let follows = json!({"follows": [
        {"user": "me", "other": "ann"},
        {"user": "me", "other": "bob", "since": "2020-01-01T00:00:00Z"},
        {"user": "me", "other": "me"},
        {"user": "", "other": "x"},
        {"user": "me"},
    ]});
    let reply = api.send("POST", "/v1/follows:batch", follows).await;
    let results = reply.json()["results"].as_array().cloned().expect("results");
    let status: Vec<u64> = results.iter().map(|result| result["status"].as_u64().expect("a status")).collect();
    assert_eq!(status, [204, 204, 422, 422, 422], "{reply:?}");
    let list = api.get("/v1/users/me/follows").await.json();
    assert_eq!(
        (&list["items"][1]["user"], &list["items"][1]["since"]),
        (&json!("bob"), &json!("2020-01-01T00:00:00.000Z"))
    );
    api.stop().await;
}

#[tokio::test]
async fn a_deleted_user_leaves_nothing() {
    let api = Api::start().await;
    publish(&api, "ann", json!({"post_id": "a", "body": "x"})).await;
    publish(&api, "bob", json!({"post_id": "b", "body": "x"})).await;
    publish(&api, "bob", json!({"post_id": "again", "repost_of": "a"})).await;
    for (user, other) in [("me", "ann"), ("me", "bob"), ("ann", "bob")] {
        follow(&api, user, other).await;
    }
    assert_eq!(api.raw("PUT", "/v1/users/ann/blocks/cy", &[], b"").await.status, 204);
    for _ in 0..2 {
        assert_eq!(api.raw("DELETE", "/v1/users/ann", &[], b"").await.status, 204);
        assert_eq!(ids(&feed(&api, "me", "").await), ["b"]);
        assert_eq!(api.get("/v1/posts/a").await.status, 404);
        assert_eq!(api.get("/v1/users/me/follows").await.json()["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(api.get("/v1/users/ann/follows").await.json()["items"], json!([]));
    }
    // Whoever comes back begins anew: nobody follows, nobody is blocked.
    publish(&api, "ann", json!({"post_id": "new", "body": "x"})).await;
    assert_eq!(ids(&feed(&api, "me", "").await), ["b"]);
    assert_eq!(ids(&feed(&api, "ann", "").await), ["new"]);
    follow(&api, "cy", "ann").await;
    assert_eq!(ids(&feed(&api, "cy", "").await), ["new"]);
    api.stop().await;
}

#[tokio::test]
async fn reading_needs_less_than_writing() {
    let token = |name: &str, role, secret| Token { name: name.to_owned(), sha256: hash_token(secret), role };
    let tokens = vec![
        token("reader", Role::Read, "reader-token-0123456789"),
        token("shop", Role::Shop, "shop-token-0123456789012"),
    ];
    let api = Api::with(tokens, true, Limits::default()).await;
    let call = async |token: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        api.raw(method, path, &headers, body.as_bytes()).await.status
    };
    let post = r#"{"post_id": "p", "body": "x"}"#;
    for (token, want) in
        [("reader-token-0123456789", 403), ("nobody-0123456789", 401), ("shop-token-0123456789012", 201)]
    {
        assert_eq!(call(token, "POST", "/v1/users/ann/posts", post).await, want, "{token}");
    }
    for path in ["/v1/users/ann/feed", "/v1/users/ann/follows", "/v1/posts/p"] {
        assert_eq!(call("reader-token-0123456789", "GET", path, "").await, 200, "{path}");
        assert_eq!(call("nobody-0123456789", "GET", path, "").await, 401, "{path}");
    }
    api.stop().await;
}
