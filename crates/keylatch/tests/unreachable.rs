//! Where nobody listens, an error says where that is: a program may have several of these.

use std::net::TcpListener;

use keylatch::{ConnectError, Locks};

/// Where nobody listens any more.
fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The error of a URL in which `AT` stands for such an address, and the address.
async fn error(url: &str) -> (String, String) {
    let at = nowhere();
    match Locks::connect(&url.replace("AT", &at)).await {
        Err(ConnectError::Unreachable(text)) => (text, at),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("connected"),
    }
}

macro_rules! names_its_address {
    ($($name:ident: $url:literal),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (text, at) = error($url).await;
                assert!(text.contains(&at), "{at} is not in: {text}");
                assert!(!text.contains("secret"), "{text}");
            }
        )*
    };
}

names_its_address![
    a_redis_that_is_not_there_is_named: "redis://:secret@AT",
    sentinels_that_are_not_there_are_named: "redis+sentinel://:secret@AT/locks",
    a_postgres_that_is_not_there_is_named: "postgres://user:secret@AT/locks",
    an_etcd_that_is_not_there_is_named: "etcd://AT",
    an_etcd_with_users_that_is_not_there_is_named: "etcd://user:secret@AT",
    a_lock_server_that_is_not_there_is_named: "keylatch://:secret@AT",
];
