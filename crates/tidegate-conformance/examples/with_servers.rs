//! Runs a command beside private servers: `with_servers mariadb redis -- COMMAND ARGUMENT..`.
//!
//! Each of `mariadb`, `postgres`, `redis`, `cluster`, `sentinel` is started on a free port; `{mariadb}`, `{redis}` and so on
//! in the command's arguments become its URL. The servers end with the command, whose exit status is ours.
#![allow(clippy::print_stderr, reason = "a command-line tool")]

use std::any::Any;
use std::process::{Command, ExitCode};

use tidegate_conformance::servers::{Cluster, Engine, MariaDb, Postgres, Redis, Sentinel};

type Started = (String, Box<dyn Any>);

fn start(name: &str) -> Option<Started> {
    Some(match name {
        "mariadb" => {
            let server = MariaDb::start();
            (server.database(), Box::new(server))
        }
        "postgres" => {
            let server = Postgres::start();
            (server.database(), Box::new(server))
        }
        "redis" => {
            let server = Redis::start();
            (server.url(), Box::new(server))
        }
        "cluster" => {
            let server = Cluster::start(Engine::Redis, false);
            (server.url(), Box::new(server))
        }
        "sentinel" => {
            let server = Sentinel::start(Engine::Redis);
            (server.url(), Box::new(server))
        }
        _ => return None,
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((names, command)) =
        arguments.iter().position(|a| a == "--").map(|at| (&arguments[..at], &arguments[at + 1..]))
    else {
        eprintln!("usage: with_servers SERVER.. -- COMMAND ARGUMENT..");
        return ExitCode::from(2);
    };
    let mut started: Vec<(&String, Started)> = Vec::new();
    for name in names {
        let Some(server) = start(name) else {
            eprintln!("with_servers: no server {name:?}; there are mariadb, postgres, redis, cluster and sentinel");
            return ExitCode::from(2);
        };
        started.push((name, server));
    }
    let mut words = command.iter().map(|word| {
        started.iter().fold(word.clone(), |word, (name, (url, _))| word.replace(&format!("{{{name}}}"), url))
    });
    let Some(program) = words.next() else {
        eprintln!("with_servers: no command after --");
        return ExitCode::from(2);
    };
    match Command::new(&program).args(words).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(e) => {
            eprintln!("with_servers: {program}: {e}");
            ExitCode::FAILURE
        }
    }
}
