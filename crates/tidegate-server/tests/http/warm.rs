//! What was read most is there after a restart.

use std::time::{Duration, Instant};

use super::client::Api;

#[tokio::test]
async fn the_hottest_pages_are_in_process_after_a_restart() {
    let api = Api::start().await;
    for n in 0..100 {
        api.sku(&format!("s-{n}"), 1).await;
    }
    for _ in 0..5 {
        for n in 0..20 {
            assert_eq!(api.get(&format!("/v1/products/s-{n}")).await.status, 200);
        }
    }
    let api = api.restarted().await;
    let begun = Instant::now();
    while api.tidegate.products().hottest(100).len() < 20 || begun.elapsed() < Duration::from_millis(800) {
        assert!(begun.elapsed() < Duration::from_secs(5), "not known again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for n in 0..20 {
        let page = api.get(&format!("/v1/products/s-{n}")).await;
        assert_eq!((page.status, page.header("x-cache")), (200, "hit-local"), "{n}: {page:?}");
    }
    let page = api.get("/v1/products/s-99").await;
    assert_eq!((page.status, page.header("x-cache")), (200, "miss"), "it was not read: {page:?}");
    api.stop().await;
}
