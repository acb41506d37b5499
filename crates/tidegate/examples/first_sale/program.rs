use std::time::Duration;
use tidegate::core::command::PutSku;
use tidegate::core::request::{PayRequest, PlaceRequest};
use tidegate::core::{PaymentOutcome, SkuId, SkuPatch};
use tidegate::{Embedded, Options, Tidegate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tidegate = Tidegate::start(Embedded::at("ledger.db").open().await?, Options::default()).await?;

    let mug = PutSku { sku: SkuId::parse("mug")?, patch: SkuPatch::default(), on_hand: Some(5), if_version: None };
    tidegate.catalog().put(mug).await?;

    let orders = tidegate.orders();
    let request = PlaceRequest {
        order_id: Some("ada-1".into()),
        buyer_id: "ada".into(),
        lines: vec![("mug".into(), 2)],
        ..PlaceRequest::default()
    };
    let placed = orders.place(orders.check(request)?).await?; // the stock is held, durably

    let payment = PayRequest { payment_id: "psp-77".into(), ..PayRequest::default() };
    let pay = payment.check(placed.order.id).map_err(tidegate::Error::Invalid)?;
    let paid = orders.pay(pay).await?;
    assert_eq!(paid.outcome, PaymentOutcome::Applied);

    tidegate.stop(Duration::from_secs(10)).await?;
    Ok(())
}
