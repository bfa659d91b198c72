//! Locks without a server: members of a cluster inside of programs.
//!
//! Three in one program: `cargo run -p keylatch --features cluster --example cluster`
//!
//! In three programs, each in a terminal of its own:
//!
//! ```sh
//! cargo run -p keylatch --features cluster --example cluster -- /tmp/one 127.0.0.1:7001
//! cargo run -p keylatch --features cluster --example cluster -- /tmp/two 127.0.0.1:7002 127.0.0.1:7001
//! cargo run -p keylatch --features cluster --example cluster -- /tmp/three 127.0.0.1:7003 127.0.0.1:7001
//! ```

use std::time::Duration;

use keylatch::cluster::{Node, Role};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [] => in_one_program().await,
        [data, listen, join @ ..] => in_three_programs(data, listen, join).await,
        [_] => Err("say nothing, or DATA-FOLDER HOST:PORT [HOST:PORT-OF-A-MEMBER]".into()),
    }
}

async fn in_one_program() -> Outcome {
    let data = std::env::temp_dir().join(format!("keylatch-example-{}", std::process::id()));
    let member = |name: &str| Node::builder(data.join(name)).listen("127.0.0.1:0");
    let one = member("one").start().await?;
    let two = member("two").join([one.peer_address()]).start().await?;
    let three = member("three").join([one.peer_address()]).start().await?;

    let guard = three.locks().lock("user:42").await?;
    println!("mine in all three, with token {}", guard.token());
    // Each gets the log before it votes.
    while two.status().await?.members.iter().filter(|it| it.role == Role::Voter).count() < 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    one.stop().await?; // another one leads; two of three are enough
    guard.release().await;
    two.locks().lock("user:42").await?.release().await;
    println!("released, and taken by another member after the first one had gone");
    three.stop().await?;
    two.stop().await?;
    Ok(std::fs::remove_dir_all(data)?)
}

async fn in_three_programs(data: &str, listen: &str, join: &[String]) -> Outcome {
    let node = Node::builder(data).listen(listen).join(join).start().await?;
    let locks = node.locks();
    println!("this member is found at {}; the return key stops it", node.peer_address());
    let mut told = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    loop {
        tokio::select! {
            _ = &mut told => return Ok(node.stop().await?),
            worked = locks.run("report", async || tokio::time::sleep(Duration::from_secs(2)).await) => match worked {
                Ok(()) => println!("worked alone for two seconds, in all of these programs"),
                Err(error) => println!("not now: {error}"),
            },
        }
    }
}
