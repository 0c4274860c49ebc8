#include "lockstep/runtime/backends/backend_channel.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "lockstep/runtime/backends/internal/backend_connection.h"
#include "lockstep/runtime/backends/internal/checked_backend.h"
#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/collective_order.h"
#include "lockstep/runtime/graphs/graph_recording.h"
#include "lockstep/runtime/workers/failure_watch.h"
#include "lockstep/runtime/workers/worker_channel.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {
namespace {

// The workers meet over their channel before they connect for the first time.
constexpr uint64_t kFirstCall = 1;

// CUDA queues about 1,000 launches for a stream, and the next one blocks.
constexpr uint64_t kMostAhead = 4;

}  // namespace

BackendChannel::BackendChannel(BackendChannelConfig config)
    : config_(std::move(config)),
      workers_(config_.workers.get()),
      first_rank_(workers_ ? workers_->layout->first_local() : 0),
      num_ranks_(workers_ ? workers_->layout->num_replicas() : static_cast<int>(config_.devices.size())),
      order_(std::make_shared<CollectiveOrder>(static_cast<int>(config_.devices.size()), first_rank_)) {
  if (workers_) {
    on_host_ = std::move(workers_->on_host);
  } else {
    on_host_ = std::make_unique<LocalChannel>(num_ranks_, LocalAlgorithm::kOneDevice, config_.timeout);
  }
  for (size_t local = 0; local < config_.devices.size(); ++local) {
    checked_.push_back(c10::make_intrusive<CheckedBackend>(rank_info(local), order_));
    backends_.push_back(checked_.back());
  }
  if (workers_) {
    connect_workers();
  } else {
    connect();
  }
}

RankInfo BackendChannel::rank_info(size_t local) const {
  RankInfo info{.op = config_.op,
                .rank = first_rank_ + static_cast<int>(local),
                .size = num_ranks_,
                .device = config_.devices[local],
                .timeout = config_.timeout};
  if (!workers_) return info;
  info.on_joined = [calls = workers_->calls](uint64_t sequence, const std::string& description) {
    calls->submit(sequence + kFirstCall, {description, nullptr, nullptr, [](const std::exception_ptr&) {}});
  };
  info.find_cause = workers_->find_cause;
  return info;
}

void BackendChannel::name_ranks(const RankNames& names) {
  order_->name_ranks(names);
  on_host_->name_ranks(names);
}

ReplicaBackends BackendChannel::backends(int replica) const {
  const auto& checked = checked_[static_cast<size_t>(replica)];
  ReplicaBackends both(checked, on_host_->backend(replica));
  both.wire_dtype = config_.wire_dtype;
  both.announce = [checked](const std::string& description) { checked->announce(description); };
  return both;
}

BackendChannel::~BackendChannel() {
  const bool goes_well = order_->is_complete() && (!workers_ || close_workers());
  watch_.reset();
  Backends connected;
  bool aborted = false;
  {
    MutexLock lock(mutex_);
    connected = std::move(connected_);
    aborted = aborted_;
  }
  if (!aborted && goes_well) {
    drop_recordings();
    shut_down_all(connected);
  } else {
    end_all(aborted ? Backends{} : connected);
  }
  // Backends that replicas have seen may outlive the channel, in the history of tensors.
  order_->abort(std::make_exception_ptr(CollectiveAborted("[" + config_.op + "] the channel is closed")));
  for (const auto& checked : checked_) {
    checked->use(nullptr);
    checked->forget_launched();
  }
}

/// Returns true if all workers have finished with the channel, on their devices too: NCCL's communicators
/// have to end together.
bool BackendChannel::close_workers() {
  const auto& calls = workers_->calls;
  try {
    if (std::uncaught_exceptions() > 0) throw ClusterError("it ended its part early");
    if (order_->abort_error()) return false;
    if (!finish_joined()) throw BackendError("[" + config_.op + "] collectives have not ended");
    calls->exchange_at(order_->joined_by_all() + kFirstCall, "close the channel");
    return true;
  } catch (...) {
    calls->fail(std::current_exception());
    return false;
  }
}

/// A worker that cannot connect ends the job, as the others would wait for it.
void BackendChannel::connect_workers() {
  const auto calls = workers_->calls;
  watch_ = std::make_unique<FailureWatch>(calls, [this, calls] {
    order_->abort(calls->error());
    end();
  });
  try {
    connect();
  } catch (...) {
    calls->fail(std::current_exception());
    std::rethrow_exception(calls->error());
  }
}

void BackendChannel::connect() {
  ConnectionRequest request{.op = config_.op,
                            .devices = config_.devices,
                            .first_rank = first_rank_,
                            .num_ranks = num_ranks_,
                            .store = nullptr,
                            .timeout = config_.timeout,
                            .meet_others = nullptr};
  if (!workers_) {
    request.store = c10::make_intrusive<c10d::HashStore>();
  } else {
    request.store = workers_->store;
    request.meet_others = [this] {
      workers_->calls->exchange_at(0, c10::str("connect ", num_ranks_, " ranks of ", config_.op));
    };
  }
  const auto connection = std::make_shared<BackendConnection>(std::move(request));
  {
    MutexLock lock(mutex_);
    connecting_ = connection;
  }
  Backends made;
  try {
    // An abort() before other threads could see the connection has left its reason.
    if (const auto error = order_->abort_error()) connection->abort(error);
    made = connection->connect(config_.factory, generation_++);
  } catch (...) {
    MutexLock lock(mutex_);
    connecting_.reset();
    throw;
  }
  for (size_t rank = 0; rank < made.size(); ++rank) checked_[rank]->use(made[rank]);
  settling_runs_left_ = num_settling_runs_;
  launched_before_run_ = checked_[0]->num_launched();
  {
    MutexLock lock(mutex_);
    connecting_.reset();
    connected_ = made;
    aborted_ = false;
  }
  // The watch acts once, and may have acted before there was anything to abort.
  if (const auto error = order_->abort_error(); error && workers_) {
    abort_all(made);
    std::rethrow_exception(error);
  }
}

void BackendChannel::disconnect() {
  watch_.reset();  // after it has finished
  Backends connected;
  bool aborted = false;
  {
    MutexLock lock(mutex_);
    connected = std::move(connected_);
    connected_.clear();
    aborted = aborted_;
  }
  if (!aborted && !workers_) finish_joined();
  end_all(aborted ? Backends{} : connected);
  for (const auto& checked : checked_) {
    checked->use(nullptr);
    checked->forget_launched();
  }
}

/// Lets the collectives that all ranks have joined finish, and finds out which have. The host waits for none
/// of them on GPUs: they may belong to a run that succeeded, and cutting them off would leave each replica
/// with different sums.
bool BackendChannel::finish_joined() {
  constexpr auto kLongest = std::chrono::seconds(10);
  const auto deadline =
      std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(config_.timeout, kLongest);
  const uint64_t num_joined = order_->joined_by_all();
  uint64_t end = num_joined;
  uint64_t num_intact = 0;
  for (bool is_running = true; is_running;) {
    num_intact = end;
    is_running = false;
    for (const auto& checked : checked_) {
      const auto open = checked->first_open(end);
      if (!open.is_running) end = open.position;  // those after a failed one may never end
      is_running = is_running || open.is_running;
      num_intact = std::min(num_intact, open.position);
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
    if (is_running) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  MutexLock lock(mutex_);
  num_intact_ = num_intact;
  return num_intact == num_joined;
}

void BackendChannel::check_usable() const {
  if (workers_) workers_->calls->check_usable();
}

void BackendChannel::check_launched() {
  for (const auto& checked : checked_) checked->check_launched();
}

void BackendChannel::enter() {
  if (workers_) workers_->calls->begin_run(order_->joined_by_all() + kFirstCall);
  bool is_connected = false;
  {
    MutexLock lock(mutex_);
    is_connected = !connected_.empty();
  }
  try {
    if (!is_connected) connect();
    check_launched();
  } catch (...) {
    reset();
    throw;
  }
  if (is_kept_together_) {
    const uint64_t launched = checked_[0]->num_launched();
    if (launched > std::exchange(launched_before_run_, launched)) --settling_runs_left_;
    for (const auto& checked : checked_) checked->limit_ahead(settling_runs_left_ > 0 ? 0 : kMostAhead);
  }
  order_->enter();
  on_host_->enter();
}

void BackendChannel::leave(int replica) {
  checked_[static_cast<size_t>(replica)]->check_launched();
  order_->leave(first_rank_ + replica);
  on_host_->leave(replica);
}

void BackendChannel::check_complete() {
  order_->check_complete();
  on_host_->check_complete();
  check_launched();
  // By then the other workers have made the same call.
  if (workers_) workers_->calls->drain();
}

void BackendChannel::release(const std::string& reason) {
  auto error = std::make_exception_ptr(CollectiveAborted(reason));
  if (workers_) {
    workers_->calls->fail(error);
    error = workers_->calls->error();
  }
  order_->abort(error);
  on_host_->release(reason);
}

void BackendChannel::abort(const std::string& reason) {
  release(reason);
  end();
}

/// Call it once the order has an error.
void BackendChannel::end() {
  std::shared_ptr<BackendConnection> connecting;
  Backends connected;
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    connecting = connecting_;
    is_first = !std::exchange(aborted_, true);
    if (is_first) connected = connected_;
  }
  if (connecting) connecting->abort(order_->abort_error());
  if (!is_first) return;
  // If other workers have failed, the run cannot continue, and their ranks may never come.
  if (!connected.empty() && !workers_) finish_joined();
  end_all(connected);
}

/// Aborts the backends and drops the recordings at the same time, as each may wait for the other: NCCL's
/// communicators do not end while a graph holds their kernels, and a graph whose replay waits for a missing
/// rank does not end before its communicator is told to abort.
void BackendChannel::end_all(const Backends& backends) {
  abort_all(backends, [this] { drop_recordings(); });
}

void BackendChannel::keep_together(int num_runs) {
  is_kept_together_ = occupies_devices() && config_.devices.size() > 1;
  num_settling_runs_ = settling_runs_left_ = num_runs;
  launched_before_run_ = checked_[0]->num_launched();
}

bool BackendChannel::occupies_devices() const {
  return config_.devices[0].is_cuda();
}

void BackendChannel::record(int replica, const std::shared_ptr<GraphRecording>& recording) {
  const auto& checked = checked_[static_cast<size_t>(replica)];
  checked->capture(recording != nullptr);
  if (!recording) return;
  recording->observe([checked] { return checked->begin_replay(); });
  MutexLock lock(mutex_);
  std::erase_if(recordings_, [](const auto& known) { return known.expired(); });
  recordings_.push_back(recording);
}

uint64_t BackendChannel::num_joined(int replica) const {
  return order_->num_joined(first_rank_ + replica);
}

uint64_t BackendChannel::num_intact() const {
  MutexLock lock(mutex_);
  return num_intact_;
}

void BackendChannel::drop_recordings() {
  std::vector<std::weak_ptr<GraphRecording>> recordings;
  {
    MutexLock lock(mutex_);
    recordings.swap(recordings_);
  }
  for (const auto& weak : recordings) {
    if (const auto recording = weak.lock()) recording->drop();
  }
}

void BackendChannel::reset() {
  disconnect();
  order_->reset();
  on_host_->reset();
}

}  // namespace lockstep
