//! A link to ZooKeeper that counts the writes which pass, and kills the process at its end at one of them.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::wait::wall_clock_millis;

/// The requests that write, by ZooKeeper's numbers: create, delete, setData, multi, create2, createContainer, createTTL.
const WRITES: [i32; 7] = [1, 2, 5, 14, 15, 19, 21];
/// The largest frame; ZooKeeper's own limit is a megabyte.
const FRAME_MAX: usize = 4 * 1024 * 1024;

/// Whether the write at which the process dies is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It never leaves the host.
    Before,
    /// It is executed, and its answer never arrives.
    After,
}

/// A process to be killed.
#[derive(Clone, Copy, Debug)]
struct Aim {
    pid: u32,
    /// At which write from now on, the first one being 1.
    write: usize,
    moment: Moment,
    /// When that was, in milliseconds since the epoch.
    hit_at: Option<i64>,
}

/// A link for one process.
#[derive(Debug)]
pub struct Tap {
    port: u16,
    aim: Arc<Mutex<Option<Aim>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Tap {
    /// Leads to that port of this host.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn to(port: u16) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let aim = Arc::new(Mutex::new(None));
        let task = tokio::spawn(serve(listener, SocketAddr::from(([127, 0, 0, 1], port)), Arc::clone(&aim)));
        Tap { port: own, aim, task }
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the process at its `write`-th write from now on.
    ///
    /// # Panics
    ///
    /// When a lock is poisoned.
    pub fn kill_at(&self, pid: u32, write: usize, moment: Moment) {
        *self.aim.lock().expect("a lock") = Some(Aim { pid, write, moment, hit_at: None });
    }

    /// When it was killed, in milliseconds since the epoch; `None` before that.
    ///
    /// # Panics
    ///
    /// When a lock is poisoned.
    pub fn killed_at(&self) -> Option<i64> {
        self.aim.lock().expect("a lock").and_then(|aim| aim.hit_at)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, aim: Arc<Mutex<Option<Aim>>>) {
    while let Ok((near, _)) = listener.accept().await {
        let aim = Arc::clone(&aim);
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(target).await else { return };
            let (near_reads, mut near_writes) = near.into_split();
            let (mut far_reads, far_writes) = far.into_split();
            let answers = async { tokio::io::copy(&mut far_reads, &mut near_writes).await.map(|_| ()) };
            // The one that ends first ends both: after the aim was hit no answer comes back.
            tokio::select! {
                _ = answers => {}
                _ = requests(near_reads, far_writes, &aim) => {}
            }
        });
    }
}

/// Passes requests on, frame by frame: a length, and after the first one a number and a kind each.
async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, aim: &Mutex<Option<Aim>>) -> std::io::Result<()> {
    let mut is_first = true;
    loop {
        let length = from.read_i32().await?;
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size > FRAME_MAX {
            return Err(std::io::Error::other("no frame of ZooKeeper's"));
        }
        let mut frame = vec![0; size];
        from.read_exact(&mut frame).await?;
        let kind = frame.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
        let writes = !is_first && kind.is_some_and(|kind| WRITES.contains(&kind));
        is_first = false;
        let hit = if writes { count(aim) } else { None };
        if hit.is_none_or(|hit| hit.moment == Moment::After) {
            to.write_i32(length).await?;
            to.write_all(&frame).await?;
            to.flush().await?;
        }
        if let Some(hit) = hit {
            let _ = Command::new("kill").arg("-KILL").arg(hit.pid.to_string()).status();
            // What was passed on reaches the server, which closes when it has read the end.
            let _ = to.shutdown().await;
            return Ok(());
        }
    }
}

/// Counts a write; gives the aim when this is the one.
fn count(aim: &Mutex<Option<Aim>>) -> Option<Aim> {
    let mut aim = aim.lock().ok()?;
    let current = aim.as_mut().filter(|aim| aim.write > 0)?;
    current.write -= 1;
    if current.write > 0 {
        return None;
    }
    current.hit_at = Some(wall_clock_millis());
    Some(*current)
}
