#include "lockstep/runtime/workers/worker_group.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cmath>
#include <future>
#include <numeric>
#include <thread>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/error_text.h"
#include "lockstep/runtime/workers/exchange_backend.h"
#include "lockstep/runtime/workers/gloo_backend.h"
#include "lockstep/runtime/workers/job_store.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// How long worker 0 keeps its store after its own failure, so that the others can read about it.
constexpr milliseconds kLinger{2000};

// How long worker 0 keeps its store for others that read that all are done.
constexpr std::chrono::seconds kLastAnswers{5};

constexpr std::chrono::seconds kStallAnswer{10};

constexpr milliseconds kConnectPoll{5};

// Time for this worker to find out about a failure that another reported: it may know the cause better.
constexpr milliseconds kOwnFinding{100};

}  // namespace

WorkerGroup::~WorkerGroup() {
  if (layout_) {
    if (std::uncaught_exceptions() > 0)
      reporter()(std::make_exception_ptr(ClusterError("it ended its part early")));
    finish_together();
    // Also ends calls of the stall watch that worker 0 no longer answers.
    if (rank_ != 0) store_->close();
  }
  stalls_.reset();
  if (heartbeat_) heartbeat_->stop();
  if (cause_search_.joinable()) cause_search_.join();
}

/// Ends together with the other workers. If a sender cut its connections early, data on its way would be
/// lost, and worker 0 holds the store in which the others look for the cause of a failure.
void WorkerGroup::finish_together() {
  if (failures_->has_failed()) {
    if (rank_ == 0) failures_->wait_for_readers(kLinger);
    return;
  }
  bool has_ended_badly = false;
  try {
    // As patient as a collective: the others wait for this worker's word. A lost worker interrupts all calls.
    const StoreCallOptions call{.timeout = timeout_, .is_interruptible = true};
    StallDetector::tell_end(*open_store(timeout_), rank_, num_completed());
    if (store_->add("done", 1, call) == size_) store_->set({"all done"}, {""}, call);
    has_ended_badly = !store_->get({"all done"}, {WorkerFailures::kKey}, call);
    // The store ends once the others have left it.
    if (!has_ended_badly && server_) server_->wait_for_departures(kLastAnswers);
  } catch (const std::exception&) {  // a worker is lost, or nobody is left to wait for
  }
  auto cause = failures_->lost();
  if (!cause && (has_ended_badly || failures_->has_failed())) cause = failures_->find_cause();
  if (cause && rank_ == 0) failures_->wait_for_readers(kLinger);
  // A destructor has no other way to report it.
  if (cause) TORCH_WARN(name_of(rank_), " was at its end when the job failed: ", error_line(cause));
}

c10::intrusive_ptr<c10d::Store> WorkerGroup::open_store(milliseconds timeout) const {
  return c10::make_intrusive<JobStore>(store_, std::vector<std::string>(), timeout);
}

c10::intrusive_ptr<c10d::Store> WorkerGroup::open_key_space() {
  return c10::make_intrusive<c10d::PrefixStore>(
      c10::str("space/", num_key_spaces_++),
      c10::make_intrusive<JobStore>(store_, std::vector<std::string>{WorkerFailures::kKey}, join_timeout_));
}

void WorkerGroup::Connections::add(c10::intrusive_ptr<c10d::Backend> backend) {
  MutexLock lock(mutex_);
  if (is_cut_) backend->abort();
  backends_.push_back(std::move(backend));
}

void WorkerGroup::Connections::cut() {
  MutexLock lock(mutex_);
  if (std::exchange(is_cut_, true)) return;
  if (hub_) hub_->interrupt();
  for (const auto& backend : backends_) backend->abort();
}

/// Gloo cannot be told that a worker is gone while it connects, and its thread is left behind then. While
/// Gloo looks for the others' keys, it finds that out by itself.
c10::intrusive_ptr<c10d::Backend> WorkerGroup::connect_gloo(const Members& members) {
  std::promise<c10::intrusive_ptr<c10d::Backend>> promise;
  auto backend = promise.get_future();
  std::thread([store = open_key_space(),
               options = GlooOptions{members.rank, static_cast<int>(members.workers.size()), address_,
                                     join_timeout_},
               promise = std::move(promise)]() mutable {
    try {
      promise.set_value(make_gloo_backend(store, options));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  while (backend.wait_for(kConnectPoll) != std::future_status::ready) {
    if (*interrupted_) throw CollectiveAborted("the connection was given up");
  }
  return backend.get();
}

/// Links are connected when they are first needed.
c10::intrusive_ptr<c10d::Backend> WorkerGroup::make_exchange(const std::string& op, uint32_t channel,
                                                             const Members& members) {
  const auto& workers = members.workers;
  return c10::make_intrusive<ExchangeBackend>(ExchangeBackend::Options{
      .op = op,
      .engine = {.rank = members.rank,
                 .size = static_cast<int>(workers.size()),
                 .generation = (static_cast<uint64_t>(restart_count_) << 32) + channel,
                 .connect =
                     [hub = hub_, channel, workers](int peer, auto deadline) {
                       return hub->connect(workers[static_cast<size_t>(peer)], channel, deadline);
                     }},
      .timeout = timeout_,
      .name_of = [failures = failures_,
                  workers](int rank) { return failures->name_of(workers[static_cast<size_t>(rank)]); },
      .policy = exchange_policy_});
}

/// Returns a function that reports a failure to the others in every possible way, without owning the group.
std::function<void(const std::exception_ptr&)> WorkerGroup::reporter() const {
  return [failures = failures_, connections = connections_,
          heartbeat = std::weak_ptr(heartbeat_)](const std::exception_ptr& error) {
    failures->report(error);
    const auto teller = heartbeat.lock();
    if (teller && failures->is_origin()) teller->tell_failure();
    connections->cut();
  };
}

std::shared_ptr<WorkerChannel> WorkerGroup::open_channel(const std::string& op,
                                                         const std::vector<int>& workers) {
  int number = 0;
  const auto completed = std::make_shared<std::atomic<uint64_t>>(0);
  {
    MutexLock lock(mutex_);
    number = static_cast<int>(completed_.size());
    completed_.push_back(completed);
  }
  Members members{.workers = workers, .rank = rank_};
  if (workers.empty()) {
    members.workers.resize(static_cast<size_t>(size_));
    std::iota(members.workers.begin(), members.workers.end(), 0);
  } else {
    const auto own = std::find(workers.begin(), workers.end(), rank_);
    if (own == workers.end()) {
      if (!hub_) open_key_space();  // so that the next one is the same on all workers
      return nullptr;
    }
    members.rank = static_cast<int>(own - workers.begin());
  }
  c10::intrusive_ptr<c10d::Backend> backend;
  try {
    backend = hub_ ? make_exchange(op, static_cast<uint32_t>(number), members) : connect_gloo(members);
    backend->setTimeout(timeout_);
  } catch (const std::exception&) {
    // Even a CollectiveAborted has a cause here that others know.
    const auto broken = std::make_exception_ptr(std::runtime_error(error_line(std::current_exception())));
    std::rethrow_exception(failures_->explain(op, broken));
  }
  WorkerChannel::Options options{
      .op = op,
      .number = number,
      .completed = completed,
      .backend = std::move(backend),
      .on_straggler =
          [failures = failures_, workers = members.workers](int rank, double times) {
            TORCH_WARN(failures->name_of(workers[static_cast<size_t>(rank)]), " takes ",
                       std::round(10 * times) / 10, " times as long as the other workers, which wait for it");
          },
      .members = workers};
  if (hub_) {
    options.open_pair = [this, op, number, members](int peer, int pair) {
      return open_pair(op, number, peer, pair, members);
    };
  }
  return make_channel(std::move(options), members);
}

/// Such channels have numbers of their own, which both workers know without the others.
std::shared_ptr<WorkerChannel> WorkerGroup::open_pair(const std::string& op, int number, int peer, int pair,
                                                      const Members& members) {
  constexpr uint32_t kIsPair = uint32_t{1} << 31;
  const uint32_t own = kIsPair | (static_cast<uint32_t>(number) * WorkerChannel::kMostPairChannels +
                                  static_cast<uint32_t>(pair));
  return make_channel({.op = op,
                       .number = static_cast<int>(own),
                       .backend = make_exchange(op, own, members),
                       .peer = members.workers[static_cast<size_t>(peer)]},
                      members);
}

/// Nothing that the channel is given owns the group: a channel's thread must not be its last owner.
std::shared_ptr<WorkerChannel> WorkerGroup::make_channel(WorkerChannel::Options options,
                                                         const Members& members) {
  connections_->add(options.backend);
  options.name_of = [failures = failures_, workers = members.workers](int rank) {
    return failures->name_of(workers[static_cast<size_t>(rank)]);
  };
  options.explain = [failures = failures_, op = options.op](const std::exception_ptr& error) {
    return failures->explain(op, error);
  };
  options.report = reporter();
  auto channel = std::make_shared<WorkerChannel>(std::move(options));
  {
    MutexLock lock(mutex_);
    std::erase_if(channels_, [](const auto& known) { return known.expired(); });
    channels_.push_back(channel);
  }
  if (const auto lost = failures_->lost()) channel->fail(lost);
  return channel;
}

void WorkerGroup::on_lost(const LostPeer& peer) {
  if (!peer.has_failed) return fail_channels(failures_->lose(peer));
  // Not in the heartbeat's thread, which must not wait.
  cause_search_ = std::thread([this, peer] {
    std::this_thread::sleep_for(kOwnFinding);
    const auto cause = failures_->find_cause();
    fail_channels(cause ? cause : failures_->lose(peer));
  });
}

void WorkerGroup::fail_channels(const std::exception_ptr& error) {
  *interrupted_ = true;
  store_->interrupt();
  for (const auto& channel : open_channels()) channel->fail(error);
}

std::vector<std::shared_ptr<WorkerChannel>> WorkerGroup::open_channels() {
  std::vector<std::shared_ptr<WorkerChannel>> open;
  MutexLock lock(mutex_);
  for (const auto& weak : channels_)
    if (auto channel = weak.lock()) open.push_back(std::move(channel));
  return open;
}

std::vector<uint64_t> WorkerGroup::num_completed() {
  std::vector<uint64_t> counts;
  MutexLock lock(mutex_);
  for (const auto& count : completed_) counts.push_back(*count);
  return counts;
}

std::unique_ptr<StallDetector> WorkerGroup::watch_stalls(const JoinOptions& options) {
  return std::make_unique<StallDetector>(StallDetector::Options{
      .rank = rank_,
      .size = size_,
      .store = open_store(kStallAnswer),
      .name_of = [failures = failures_](int worker) { return failures->name_of(worker); },
      .positions =
          [this] {
            std::vector<CollectivePosition> positions;
            for (const auto& channel : open_channels()) positions.push_back(channel->position());
            return positions;
          },
      .log = [](const std::string& report) { TORCH_WARN(report); },
      .fail = [this](const std::exception_ptr& error) { fail_channels(error); },
      .report_after = options.report_stall_after});
}

}  // namespace lockstep
