//! The private servers themselves: they start, fail and come back as tests need it.
#![cfg(feature = "servers")]

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use tidegate_conformance::servers::{Folder, MariaDb, Postgres, wait_until};

macro_rules! server_tests {
    ($name:ident, $server:ident, $system:expr, $zone:expr, $ask:expr => $answer:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn it_loses_its_power_and_keeps_what_it_had() {
                let server = $server::start();
                let url = server.database();
                let name = url.rsplit('/').next().unwrap().to_owned();
                server.sql(&name, "CREATE TABLE a (b INT PRIMARY KEY)");
                server.sql(&name, "INSERT INTO a VALUES (7)");
                server.kill();
                let refused = TcpStream::connect(("127.0.0.1", server.port())).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
                server.restart();
                assert_eq!(server.sql(&name, "SELECT b FROM a"), "7\n");
                server.restart();
                assert_eq!(server.sql(&name, "SELECT b FROM a"), "7\n");
                assert_ne!(server.database(), url);
            }

            #[test]
            fn a_frozen_server_answers_when_it_thaws() {
                let server = $server::start_with(&[$zone]);
                server.freeze();
                let began = Instant::now();
                let pause = Duration::from_millis(500);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(pause);
                        server.thaw();
                    });
                    assert_eq!(server.sql($system, $ask), $answer);
                });
                assert!(began.elapsed() >= pause);
            }

            #[test]
            fn one_server_serves_all_who_hold_it() {
                let one = $server::shared();
                let other = $server::shared();
                assert_eq!(one.port(), other.port());
                assert_ne!(one.database(), other.database());
                let port = one.port();
                drop((one, other));
                assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the last who leaves ends it");
            }
        }
    };
}

server_tests!(postgres, Postgres, "postgres", ("timezone", "Asia/Kathmandu"), "SHOW timezone" => "Asia/Kathmandu\n");
server_tests!(mariadb, MariaDb, "mysql", ("default-time-zone", "+05:45"), "SELECT @@time_zone" => "+05:45\n");

#[test]
fn a_read_only_postgres_refuses_to_write() {
    let server = Postgres::start();
    server.set_read_only(true);
    let psql = |sql: &str| {
        let mut psql = Command::new("psql");
        psql.args(["--no-psqlrc", "--dbname", &server.url("postgres"), "--command", sql]).output().unwrap()
    };
    let refused = psql("CREATE TABLE a (b INT)");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("read-only transaction"), "{refused:?}");
    server.set_read_only(false);
    assert!(psql("CREATE TABLE a (b INT)").status.success());
}

#[test]
fn a_read_only_mariadb_refuses_to_write() {
    let server = MariaDb::start();
    let url = server.database();
    let name = url.rsplit('/').next().unwrap();
    let client = |sql: &str| {
        let mut client = Command::new("mariadb");
        let port = format!("--port={}", server.port());
        client.args(["--no-defaults", "--user=tidegate", "--password=tidegate", "--host=127.0.0.1", &port]);
        client.args(["--execute", sql, name]).output().unwrap()
    };
    server.set_read_only(true);
    let refused = client("CREATE TABLE a (b INT)");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("read-only"), "{refused:?}");
    server.set_read_only(false);
    assert!(client("CREATE TABLE a (b INT)").status.success());
}

#[test]
fn every_connection_is_ended_from_the_servers_side() {
    let (postgres, mariadb) = (Postgres::start(), MariaDb::start());
    let url = mariadb.database();
    let port = format!("--port={}", mariadb.port());
    let sleepers = [
        Command::new("psql").args(["--dbname", &postgres.url("postgres"), "--command", "SELECT pg_sleep(60)"]).spawn(),
        Command::new("mariadb")
            .args(["--no-defaults", "--user=tidegate", "--password=tidegate", "--host=127.0.0.1", &port])
            .args(["--execute", "SELECT sleep(60)", url.rsplit('/').next().unwrap()])
            .spawn(),
    ];
    let sleeping =
        "SELECT count(*) FROM information_schema.processlist WHERE user = 'tidegate' AND info LIKE '%sleep%'";
    wait_until("MariaDB's client", || mariadb.sql("mysql", sleeping) == "1\n");
    let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    wait_until("PostgreSQL's client", || postgres.sql("postgres", sleeping) == "1\n");
    postgres.kill_connections();
    mariadb.kill_connections();
    for sleeper in sleepers {
        assert!(!sleeper.unwrap().wait().unwrap().success());
    }
}

/// The other end of [`servers_end_with_the_process_that_started_them`]: holds two servers until it is killed.
#[test]
#[ignore = "a process of its own, started by another test"]
#[expect(clippy::print_stdout, reason = "it tells the other end where they are")]
fn holder() {
    let (postgres, mariadb) = (Postgres::start(), MariaDb::start());
    let folders = [postgres.sql("postgres", "SHOW data_directory"), mariadb.sql("mysql", "SELECT @@datadir")];
    println!("\nservers {} {} {} {}", postgres.port(), mariadb.port(), folders[0].trim(), folders[1].trim());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn servers_end_with_the_process_that_started_them() {
    let mut holder = Command::new(std::env::current_exe().unwrap());
    holder.args(["--exact", "holder", "--ignored", "--nocapture"]).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.filter_map(|line| Some(line.strip_prefix("servers ")?.to_owned())).next().expect("its servers");
    let told: Vec<&str> = told.split(' ').collect();
    let ports = told[..2].iter().map(|port| port.parse::<u16>().unwrap());
    let serve = || ports.clone().filter(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()).count();
    assert_eq!(serve(), 2);
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the servers of a killed process to end", || serve() == 0);

    // Whoever starts a server later deletes what they left.
    let left: Vec<&Path> = told[2..].iter().map(|data| Path::new(data).parent().unwrap()).collect();
    drop(Folder::new());
    assert!(left.iter().all(|folder| folder.exists()), "they may be of a test that begins: {left:?}");
    let long_ago = SystemTime::now() - Duration::from_secs(600);
    left.iter().for_each(|folder| File::open(folder).unwrap().set_modified(long_ago).unwrap());
    drop(Folder::new());
    assert!(!left.iter().any(|folder| folder.exists()), "{left:?}");
}
