//! A started job: its state, its events, its operations, its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use elasticjob_core::machine::{JobEvent, StopReason};
use futures_util::stream::{BoxStream, Stream, StreamExt};
use tokio::sync::{broadcast, oneshot, watch};

use crate::connection::Connection;
use crate::operations::{ItemResult, Operations, Scope, TriggerRequest};
use crate::worker::{JobState, Message};
use crate::{Error, STOP_GRACE};

/// A started job. Dropping the handle does not stop the job, as long as another handle or the [`Connection`] exists.
#[derive(Clone, Debug)]
pub struct JobHandle {
    name: String,
    connection: Connection,
    states: watch::Receiver<JobState>,
    stopping: Stopping,
}

/// The request to stop a job, for the time before the worker knows the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopping(Arc<watch::Sender<Option<Duration>>>);

impl Stopping {
    pub(crate) fn requested(&self) -> Option<Duration> {
        *self.0.borrow()
    }

    pub(crate) async fn wait(&self) {
        let _ = self.0.subscribe().wait_for(Option::is_some).await; // `self` holds the sender
    }
}

impl JobHandle {
    pub(crate) fn new(
        name: String,
        connection: Connection,
        states: watch::Receiver<JobState>,
        stopping: Stopping,
    ) -> JobHandle {
        JobHandle { name, connection, states, stopping }
    }

    /// Returns the name of the job.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if both are handles of the same start of a job.
    pub fn is_same(&self, other: &JobHandle) -> bool {
        self.states.same_channel(&other.states)
    }

    /// Waits until the instance is registered.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the registry's content refuses the job, or if the job stopped before.
    pub async fn joined(&self) -> Result<(), Error> {
        let mut states = self.states.clone();
        let settled = |state: &JobState| matches!(state, JobState::Running { .. } | JobState::Stopped(_));
        let reason = match &*states.wait_for(settled).await.map_err(|_| Error::Ended)? {
            JobState::Stopped(StopReason::Refused(reason)) => reason.clone(),
            JobState::Stopped(StopReason::Asked) => "stopped before it joined".to_owned(),
            JobState::Stopped(StopReason::ShutDown) => "an operator shut it down".to_owned(),
            JobState::Running { .. } | JobState::Starting | JobState::Disconnected => return Ok(()),
        };
        Err(Error::Refused { job: self.name.clone(), reason })
    }

    /// Returns the current state.
    pub fn state(&self) -> JobState {
        self.states.borrow().clone()
    }

    /// Returns the state as a channel that reports every change.
    pub fn states(&self) -> watch::Receiver<JobState> {
        self.states.clone()
    }

    /// Returns the events of the job on this instance from now on, until the job stops.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
    /// use elasticjob::{JobEvent, ScheduleJob};
    ///
    /// let connection = elasticjob::registry::connect("memory:").await?;
    /// let job = ScheduleJob::new("tick", 1).cron("* * * * * ?").simple(|_| async { Ok(()) }).start(&connection).await?;
    /// let mut events = job.events().await?;
    /// while let Some(event) = events.next().await {
    ///     if matches!(event, JobEvent::Ended { .. }) {
    ///         break;
    ///     }
    /// }
    /// # Ok::<(), elasticjob::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// The job has not been registered with this process yet, or has stopped.
    pub async fn events(&self) -> Result<JobEvents, Error> {
        let (answer, events) = oneshot::channel();
        self.connection.worker().tell(Message::Events { job: self.name.clone(), answer })?;
        let events = events.await.map_err(|_| Error::Stopped { job: self.name.clone() })?;
        Ok(JobEvents::new(events))
    }

    /// Runs the job once, now: each enabled item once, on the instance that owns it (Java: `JobOperateAPI.trigger`,
    /// `OneOffJobBootstrap.execute`). An item that is running runs again after that.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] if the job is disabled, or if the registry failed.
    #[doc(alias = "execute")]
    pub async fn trigger(&self) -> Result<Trigger, Error> {
        let operations = self.operations();
        let request = operations.trigger_with_results(&self.name).await?;
        Ok(Trigger { operations, request })
    }

    /// Disables the job on all servers, also after restarts. Running items complete.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] if the registry failed.
    pub async fn disable(&self) -> Result<(), Error> {
        Ok(self.operations().disable(Scope::Job(&self.name)).await?)
    }

    /// Enables the job on all servers.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] if the registry failed.
    pub async fn enable(&self) -> Result<(), Error> {
        Ok(self.operations().enable(Scope::Job(&self.name)).await?)
    }

    /// Changes the cron expression of the job, on all instances.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] if the expression is invalid, or if the registry failed.
    pub async fn reschedule(&self, cron: &str) -> Result<(), Error> {
        Ok(self.operations().update_config(&self.name, |document| document.cron = Some(cron.to_owned())).await?)
    }

    /// Changes the number of items of the job. The leader assigns the items again.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] if the number is invalid, or if the registry failed.
    pub async fn set_sharding_total_count(&self, count: u32) -> Result<(), Error> {
        let set = |document: &mut crate::JobDocument| document.sharding_total_count = count.into();
        Ok(self.operations().update_config(&self.name, set).await?)
    }

    fn operations(&self) -> Operations {
        self.connection.operations()
    }

    /// Logs again how the configuration of this start differs from the stored one. The job logs that by itself when it joins and
    /// when the stored one changes.
    pub fn log_differences(&self) {
        // A worker that has ended runs no job.
        let _ = self.connection.worker().tell(Message::Compare { job: self.name.clone() });
    }

    /// Stops the job. No run starts any more. Running items have 30 seconds to complete, then
    /// [`Context::cancelled`](crate::Context::cancelled) fires. The nodes of the instance are deleted when all items have ended,
    /// or 12 seconds later.
    pub async fn stop(&self) -> StopReason {
        self.stop_within(STOP_GRACE).await
    }

    /// Stops the job with another grace for running items; see [`JobHandle::stop`].
    pub async fn stop_within(&self, grace: Duration) -> StopReason {
        self.stopping.0.send_replace(Some(grace));
        let message = Message::Stop { job: self.name.clone(), deadline: self.connection.clock().now() + grace };
        if self.connection.worker().tell(message).is_err() {
            return StopReason::Asked;
        }
        self.stopped().await
    }

    /// Waits until the job has stopped, for whatever reason.
    pub async fn stopped(&self) -> StopReason {
        let mut states = self.states.clone();
        match states.wait_for(|state| matches!(state, JobState::Stopped(_))).await.as_deref() {
            Ok(JobState::Stopped(reason)) => reason.clone(),
            _ => StopReason::Asked,
        }
    }
}

/// A trigger of a job. Its items run although this value is dropped.
#[derive(Debug)]
pub struct Trigger {
    operations: Operations,
    request: TriggerRequest,
}

impl Trigger {
    /// Returns the items that run once each.
    pub fn items(&self) -> &[u32] {
        &self.request.triggered.items
    }

    /// Returns the items that do not run, with the reason.
    pub fn not_run(&self) -> &[(u32, &'static str)] {
        &self.request.triggered.not_run
    }

    /// Waits until every triggered item has run, without limit, and returns the results. Items of Java instances report no result
    /// and are not among them.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] if the registry could not be reached for a minute. The items run all the same.
    pub async fn finished(&self) -> Result<Vec<ItemResult>, Error> {
        Ok(self.operations.results(&self.request, None, |_| {}).await?)
    }
}

/// The events of a job on one instance, as a stream. A reader that is more than 1,024 events late loses the oldest ones.
pub struct JobEvents(BoxStream<'static, JobEvent>);

impl JobEvents {
    fn new(events: broadcast::Receiver<JobEvent>) -> JobEvents {
        let next = async |mut events: broadcast::Receiver<JobEvent>| loop {
            match events.recv().await {
                Ok(event) => return Some((event, events)),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        };
        JobEvents(futures_util::stream::unfold(events, next).boxed())
    }

    /// Returns the next event, or `None` after the job has stopped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<JobEvent> {
        self.0.next().await
    }
}

impl Stream for JobEvents {
    type Item = JobEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<JobEvent>> {
        self.0.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for JobEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobEvents")
    }
}
