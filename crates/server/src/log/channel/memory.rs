//! Links inside of one process, for tests: nodes are found by address, and links can be cut, each direction
//! by itself.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::{Answers, Channel, ChannelError, Connecting, Hello, Link, MOST_BYTES, Serves};

/// Everyone who can be reached.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    answers: HashMap<String, Arc<dyn Answers>>,
    /// From which address to which one nothing goes.
    cut: HashSet<(String, String)>,
}

/// The channel of the node at an address.
pub(crate) struct Memory {
    hub: Hub,
    own: String,
}

/// Where the node at an address is called.
pub(crate) struct Place {
    hub: Hub,
    own: String,
}

struct MemoryLink {
    hub: Hub,
    own: String,
    to: String,
    from: u64,
}

impl Hub {
    pub(crate) fn channel(&self, own: &str) -> Memory {
        Memory { hub: self.clone(), own: own.into() }
    }

    pub(crate) fn place(&self, own: &str) -> Place {
        Place { hub: self.clone(), own: own.into() }
    }

    pub(crate) fn put(&self, address: &str, answers: Arc<dyn Answers>) {
        self.0.lock().answers.insert(address.into(), answers);
    }

    pub(crate) fn cut(&self, from: &str, to: &str) {
        self.0.lock().cut.insert((from.into(), to.into()));
    }

    pub(crate) fn heal(&self) {
        self.0.lock().cut.clear();
    }

    fn find(&self, from: &str, to: &str) -> io::Result<Arc<dyn Answers>> {
        self.check(from, to)?;
        let inner = self.0.lock();
        inner.answers.get(to).cloned().ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }

    fn check(&self, from: &str, to: &str) -> io::Result<()> {
        match self.0.lock().cut.contains(&(from.into(), to.into())) {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }
}

impl Serves for Place {
    fn serve(self: Box<Self>, answers: Arc<dyn Answers>) -> io::Result<BoxFuture<'static, ()>> {
        self.hub.put(&self.own, answers);
        Ok(Box::pin(async move {
            // Dropped with this: nobody is there any more.
            let _place = self;
            std::future::pending::<()>().await;
        }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hub.0.lock().answers.remove(&self.own);
    }
}

impl Channel for Memory {
    fn connect<'a>(&'a self, address: &'a str, hello: Hello) -> Connecting<'a> {
        Box::pin(async move {
            let welcome = self.hub.find(&self.own, address)?.welcome(&hello)?;
            self.hub.check(address, &self.own)?;
            let (hub, own, to) = (self.hub.clone(), self.own.clone(), address.to_owned());
            let link: Box<dyn Link> = Box::new(MemoryLink { hub, own, to, from: hello.from });
            Ok((link, welcome))
        })
    }
}

impl Link for MemoryLink {
    fn call<'a>(&'a mut self, request: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ChannelError>> {
        Box::pin(async move {
            if request.len() > MOST_BYTES {
                return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
            }
            let answers = self.hub.find(&self.own, &self.to)?;
            let reply = answers.answer(self.from, request.to_vec()).await;
            self.hub.check(&self.to, &self.own)?;
            Ok(reply)
        })
    }
}
