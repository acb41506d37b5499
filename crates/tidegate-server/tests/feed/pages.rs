//! Pages: cursors, ranges, both orders, ends.

use serde_json::json;

use crate::client::Api;
use crate::{feed, follow, ids, invalid, pass, publish, refusal};

/// Twelve posts a minute apart, by three authors whom `me` follows: `p00` is the oldest.
async fn community() -> Api {
    let api = Api::start().await;
    for other in ["ann", "bob", "cy"] {
        follow(&api, "me", other).await;
    }
    for n in 0..12 {
        let author = ["ann", "bob", "cy"][n % 3];
        publish(&api, author, json!({"post_id": format!("p{n:02}"), "body": "x"})).await;
        pass(&api, 60_000).await;
    }
    api
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repeat() {
    let api = community().await;
    let all: Vec<String> = (0..12).map(|n| format!("p{n:02}")).collect();
    for (order, want) in [("newest", all.iter().rev().cloned().collect::<Vec<_>>()), ("oldest", all.clone())] {
        for limit in [1, 5, 12, 100] {
            let (mut have, mut query) = (Vec::new(), format!("?order={order}&limit={limit}"));
            loop {
                let page = feed(&api, "me", &query).await;
                have.extend(ids(&page).into_iter().map(str::to_owned));
                match page["next_cursor"].as_str() {
                    Some(cursor) => {
                        assert_eq!((ids(&page).len(), &page["end"]), (limit, &json!(null)));
                        query = format!("?limit={limit}&cursor={cursor}");
                    }
                    None => {
                        assert_eq!(page["end"], "complete");
                        break;
                    }
                }
            }
            assert_eq!(have, want, "{order} by {limit}");
        }
    }
    api.stop().await;
}

#[tokio::test]
async fn a_walk_keeps_to_what_was_there_when_it_began() {
    let api = community().await;
    let first = feed(&api, "me", "?limit=4").await;
    let cursor = first["next_cursor"].as_str().expect("a cursor").to_owned();
    // A repost of what is to come, and a new post, between two pages.
    publish(&api, "bob", json!({"post_id": "again", "repost_of": "p03"})).await;
    publish(&api, "bob", json!({"post_id": "new", "body": "x"})).await;
    let rest = feed(&api, "me", &format!("?limit=100&cursor={cursor}")).await;
    assert_eq!(ids(&rest), ["p07", "p06", "p05", "p04", "p03", "p02", "p01", "p00"]);
    let anew = feed(&api, "me", "?limit=3").await;
    assert_eq!(ids(&anew), ["new", "p03", "p11"]);
    assert_eq!(anew["items"][1]["reason_count"], 2);
    api.stop().await;
}

#[tokio::test]
async fn ranges_and_ends() {
    let api = community().await;
    let page = feed(&api, "me", "").await;
    let at = |n: usize| page["items"][11 - n]["at"].as_str().expect("an instant").to_owned();
    let range = format!("?since={}&until={}", at(3), at(6));
    let some = feed(&api, "me", &range).await;
    assert_eq!((ids(&some), &some["end"]), (vec!["p05", "p04", "p03"], &json!("window")));
    let some = feed(&api, "me", &format!("{range}&order=oldest")).await;
    assert_eq!((ids(&some), &some["end"]), (vec!["p03", "p04", "p05"], &json!("window")));
    let old = feed(&api, "me", "?since=2001-01-01T00:00:00Z").await;
    assert_eq!((ids(&old).len(), &old["end"]), (12, &json!("complete")));
    let cursor = feed(&api, "me", "?limit=2").await["next_cursor"].as_str().expect("a cursor").to_owned();
    pass(&api, 7 * 86_400_000 - 300_000).await;
    let late = feed(&api, "me", "").await;
    assert_eq!(late["end"], "window");
    assert!((4..=6).contains(&ids(&late).len()), "{late}");
    pass(&api, 3_600_000).await;
    assert_eq!(feed(&api, "me", "").await, json!({"items": [], "next_cursor": null, "end": "window"}));
    let expired = api.get(&format!("/v1/users/me/feed?cursor={cursor}")).await;
    assert_eq!((expired.status, expired.code().as_str()), (410, "cursor-expired"));
    assert_eq!(feed(&api, "nobody", "").await["end"], "complete");
    api.stop().await;
}

#[tokio::test]
async fn what_is_no_page_is_refused() {
    let api = community().await;
    let cursor = feed(&api, "me", "?limit=2").await["next_cursor"].as_str().expect("a cursor").to_owned();
    let other = format!("{}{}", &cursor[..cursor.len() - 1], if cursor.ends_with('A') { "B" } else { "A" });
    for (user, query, pointer) in [
        ("me", "limit=0".to_owned(), "/limit"),
        ("me", "limit=101".to_owned(), "/limit"),
        ("me", "limit=many".to_owned(), "/limit"),
        ("me", "since=yesterday".to_owned(), "/since"),
        ("me", "until=".to_owned(), "/until"),
        ("me", "since=2026-01-01T00:00:00Z&until=2026-01-01T00:00:00Z".to_owned(), "/until"),
        ("me", "order=random".to_owned(), "/order"),
        ("me", "page=2".to_owned(), "/page"),
        ("me", "cursor=".to_owned(), "/cursor"),
        ("me", format!("cursor={other}"), "/cursor"),
        ("ann", format!("cursor={cursor}"), "/cursor"),
        ("me", format!("cursor={cursor}&order=oldest"), "/order"),
        ("me", format!("cursor={cursor}&since=2026-01-01T00:00:00Z"), "/since"),
        ("%20", String::new(), "/id"),
    ] {
        let reply = api.get(&format!("/v1/users/{user}/feed?{query}")).await;
        assert_eq!(refusal(&reply), invalid(&[pointer]), "{user} {query}");
    }
    api.stop().await;
}

#[tokio::test]
async fn f2_what_the_viewer_does_not_see_takes_no_place() {
    let api = Api::start().await;
    follow(&api, "me", "ann").await;
    publish(&api, "ann", json!({"post_id": "seen", "body": "x"})).await;
    pass(&api, 1).await;
    let hidden: Vec<_> = (0..100)
        .map(|n| {
            let visibility = ["private", "hidden"][n % 2];
            json!({"author": "ann", "post_id": format!("h{n}"), "body": "x", "visibility": visibility})
        })
        .collect();
    let reply = api.send("POST", "/v1/posts:batch", json!({"posts": hidden})).await;
    assert_eq!(reply.status, 200);
    let page = feed(&api, "me", "").await;
    assert_eq!((ids(&page), &page["end"]), (vec!["seen"], &json!("complete")));
    assert_eq!(ids(&feed(&api, "ann", "?limit=100").await).len(), 51, "an author sees what is private");
    api.stop().await;
}
