//! `tidegate replay` with the real binary: a small file of every oddity, a repeat against one server, the real month.
#![expect(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]
#![expect(clippy::print_stderr, reason = "a test that is left out says so")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

const HEADER: &str = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n";

/// Four orders (one of a guest), a whole and a partial cancellation, and a row of most reasons.
const SHOP: &str = "\
1001,85123A,\"HEART, WHITE\",6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
1001,71053,\"LANTERN 7\"\" METAL\",6,2010-12-01 08:26:00,3.39,17850.0,United Kingdom
1002,85123A,\"HEART, WHITE\",2,2010-12-01 08:28:00,2.95,13047.0,United Kingdom
1003,gift_0001_20,,1,2010-12-01 08:34:00,16.67,,United Kingdom
1004,71053,LANTERN,10,2010-12-01 09:00:00,3.39,17850.0,United Kingdom
C1005,85123A,HEART,-2,2010-12-01 09:01:00,2.95,13047.0,United Kingdom
C1006,71053,LANTERN,-4,2010-12-01 09:02:00,3.39,17850.0,United Kingdom
C1007,D,Discount,-1,2010-12-01 09:03:00,27.5,14527.0,United Kingdom
1008,22139,?,-40,2010-12-01 09:04:00,0.0,,United Kingdom
1009,22139,damaged,1,2010-12-01 09:04:00,0.0,,United Kingdom
1010,22139,odd,1,12/1/2010 9:05,1.25,1,United Kingdom
1011,22139,odd,1,2010-12-01 09:06:00,1.255,1,United Kingdom
1012, 22139,odd,1,2010-12-01 09:06:00,1.25,1,United Kingdom
1013,22139
";

fn replay(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["replay", "--json", "--hold-seconds", "1"]).args(args);
    command.env_remove("TIDEGATE_URL").env_remove("TIDEGATE_TOKEN").output().unwrap()
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn n(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"))
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_row_is_used_or_told() {
    let folder = tempfile::tempdir().unwrap();
    let shop = file(folder.path(), "shop.csv", &format!("{HEADER}{SHOP}"));
    let rest = folder.path().join("rest.ndjson");
    let output = replay(&[&shop, "--unusable", rest.to_str().unwrap()]);
    let report = report(&output);
    assert!(output.status.success(), "{report}");
    assert_eq!((n(&report, "placed"), n(&report, "refused"), n(&report, "cancelled")), (4, 0, 1), "{report}");
    assert_eq!(
        (n(&report, "orders_in_file"), n(&report, "cancellations"), n(&report, "guests")),
        (4, 3, 1),
        "{report}"
    );
    let reasons = json!({
        "bad-date": 1, "bad-price": 1, "bad-sku": 1, "cancellation-without-order": 1, "negative-quantity": 1,
        "partial-cancellation": 1, "wrong-columns": 1, "zero-price": 1,
    });
    assert_eq!(report["rows"], json!({"read": 14, "used": 6, "unusable": reasons}));
    assert_eq!((n(&report, "oversold"), n(&report, "duplicates")), (0, 0));
    let invariants = report["invariants"].as_object().unwrap();
    assert!(["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I9"].iter().all(|name| invariants[*name] == true), "{report}");
    let told = std::fs::read_to_string(rest).unwrap();
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut seen: Vec<_> =
        lines.iter().map(|line| (line["line"].as_u64().unwrap(), line["reason"].as_str().unwrap())).collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            (8, "partial-cancellation"),
            (9, "cancellation-without-order"),
            (10, "negative-quantity"),
            (11, "zero-price"),
            (12, "bad-date"),
            (13, "bad-price"),
            (14, "bad-sku"),
            (15, "wrong-columns"),
        ]
    );
}

#[test]
fn without_stock_orders_are_refused_and_their_cancellations_too() {
    let folder = tempfile::tempdir().unwrap();
    let shop = file(folder.path(), "shop.csv", &format!("{HEADER}{SHOP}"));
    let report = report(&replay(&[&shop, "--stock", "0"]));
    assert_eq!((n(&report, "placed"), n(&report, "refused")), (0, 4), "{report}");
    assert_eq!(report["refusals"], json!({"insufficient-stock": 4}));
    assert_eq!(report["rows"]["unusable"]["cancellation-of-refused-order"], 1, "{report}");
}

#[test]
fn other_columns_another_currency_and_who_pays() {
    let folder = tempfile::tempdir().unwrap();
    let text = "no;x,sku,q,day,unit,who\r\n7,A,2,2024-01-01T10:00:00Z,150,ann\r\n8,A,1,2024-01-01T11:00:00Z,151,bob\r\n9,A,1,2024-01-01T11:00:00Z,1.5,bob\r\n";
    let shop = file(folder.path(), "yen.csv", text);
    let map = "invoice=no;x,sku=sku,quantity=q,date=day,price=unit,customer=who";
    for (ratio, paid, expired) in [("1", 2, 0), ("0", 0, 2)] {
        let report = report(&replay(&[&shop, "--map", map, "--currency", "JPY", "--pay-ratio", ratio]));
        assert_eq!((n(&report, "paid"), n(&report, "expired")), (paid, expired), "{report}");
        assert_eq!(report["rows"]["unusable"], json!({"bad-price": 1}));
    }
}

/// A server of the test's own; killed at the end.
struct Server(Child, String);

impl Server {
    fn start(folder: &Path) -> Self {
        let ledger = format!("sqlite:{}", folder.join("ledger.db").display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--listen", "127.0.0.1:0", "--ledger", &ledger])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.find("http://").unwrap_or_else(|| panic!("no address in {line:?}"));
        let url = line[at..].trim().to_owned();
        Self(child, url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_repeat_against_one_server_places_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let shop = file(folder.path(), "shop.csv", &format!("{HEADER}{SHOP}"));
    let server = Server::start(folder.path());
    let first = report(&replay(&[&shop, "--to", &server.1]));
    assert_eq!((n(&first, "placed"), n(&first, "replayed"), n(&first, "cancelled")), (4, 0, 1), "{first}");
    let again = report(&replay(&[&shop, "--to", &server.1]));
    assert_eq!((n(&again, "placed"), n(&again, "replayed"), n(&again, "oversold")), (0, 4, 0), "{again}");
    for report in [&first, &again] {
        let invariants = report["invariants"].as_object().unwrap();
        let names: Vec<_> = invariants.keys().map(String::as_str).collect();
        assert_eq!(names, ["I1", "I4", "I5", "I6", "I7"], "what cannot be checked from outside is left out");
        assert!(invariants.values().all(|held| held == true), "{report}");
    }
}

#[test]
fn wrong_files_flags_and_servers_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let shop = file(folder.path(), "shop.csv", &format!("{HEADER}{SHOP}"));
    let other = file(folder.path(), "other.csv", "a,b\n1,2\n");
    let empty = file(folder.path(), "empty.csv", HEADER);
    for (args, code) in [
        (&["no-such-file.csv"][..], 2),
        (&[&other], 2),
        (&[&empty], 1),
        (&[&shop, "--map", "colour=x"], 2),
        (&[&shop, "--currency", "XXQ"], 2),
        (&[&shop, "--speed", "0"], 2),
        (&[&shop, "--ledger", "oracle://localhost/x"], 2),
        (&[&shop, "--ledger", "mysql://localhost:1/x"], 3),
        (&[&shop, "--to", "localhost:1"], 2),
        (&[&shop, "--to", "http://127.0.0.1:1"], 3),
    ] {
        let output = replay(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The folder of the real month, if it is there: beside the repository, or under `TIDEGATE_SHARED`.
fn month() -> Option<Vec<PathBuf>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("TIDEGATE_SHARED").map_or(beside, PathBuf::from);
    let mut files: Vec<_> =
        std::fs::read_dir(shared.join("data/online-retail")).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "csv"));
    files.sort();
    (!files.is_empty()).then_some(files)
}

#[test]
fn the_real_month() {
    let Some(files) = month() else {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "in CI the real month must be there: set TIDEGATE_SHARED"
        );
        eprintln!("left out: the real month is not beside the repository (set TIDEGATE_SHARED)");
        return;
    };
    let files: Vec<&str> = files.iter().filter_map(|file| file.to_str()).collect();
    let output = replay(&files);
    let report = report(&output);
    assert!(output.status.success(), "{report}");
    let rows = &report["rows"];
    let unusable: u64 = rows["unusable"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(rows["read"].as_u64().unwrap(), rows["used"].as_u64().unwrap() + unusable, "{rows}");
    assert!(rows["read"].as_u64().unwrap() > 42_000);
    assert_eq!(n(&report, "placed"), n(&report, "orders_in_file"), "all of the stock is there: {report}");
    assert_eq!((n(&report, "oversold"), n(&report, "duplicates")), (0, 0));
    let invariants = report["invariants"].as_object().unwrap();
    assert!(invariants.len() >= 8 && invariants.values().all(|held| held == true), "{report}");
}
