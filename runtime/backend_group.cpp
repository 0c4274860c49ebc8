#include "lockstep/runtime/backend_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "lockstep/runtime/backend_connection.h"
#include "lockstep/runtime/checked_backend.h"
#include "lockstep/runtime/collective_order.h"
#include "lockstep/runtime/graph_recording.h"

namespace lockstep {

BackendGroup::BackendGroup(std::string op, BackendFactory factory, std::vector<LogicalDevice> devices,
                           std::chrono::milliseconds timeout)
    : op_(std::move(op)),
      factory_(std::move(factory)),
      devices_(std::move(devices)),
      timeout_(timeout),
      order_(std::make_shared<CollectiveOrder>(static_cast<int>(devices_.size()))),
      on_host_(static_cast<int>(devices_.size()), LocalAlgorithm::kOneDevice, timeout) {
  const int size = static_cast<int>(devices_.size());
  for (int rank = 0; rank < size; ++rank) {
    checked_.push_back(c10::make_intrusive<CheckedBackend>(
        BackendPlace{op_, rank, size, devices_[static_cast<size_t>(rank)], timeout_}, order_));
    backends_.push_back(checked_.back());
  }
  connect();
}

BackendGroup::~BackendGroup() {
  Backends connected;
  bool aborted = false;
  {
    MutexLock lock(mutex_);
    connected = std::move(connected_);
    aborted = aborted_;
  }
  drop_recordings();
  if (!aborted && order_->is_complete()) {
    shut_down_all(connected);
  } else if (!aborted) {
    abort_all(connected);
  }
  // The backends that replicas saw may live on, in the history of tensors.
  order_->abort("[" + op_ + "] the channel is closed");
  for (const auto& checked : checked_) {
    checked->use(nullptr);
    checked->forget_launched();
  }
}

void BackendGroup::connect() {
  const auto connection = std::make_shared<BackendConnection>(op_, devices_, timeout_);
  {
    MutexLock lock(mutex_);
    connecting_ = connection;
  }
  Backends made;
  try {
    // An abort() that came before the connection could be seen has left its reason.
    if (const auto reason = order_->abort_reason()) connection->abort(*reason);
    made = connection->connect(factory_, generation_++);
  } catch (...) {
    MutexLock lock(mutex_);
    connecting_.reset();
    throw;
  }
  for (size_t rank = 0; rank < made.size(); ++rank) checked_[rank]->use(made[rank]);
  MutexLock lock(mutex_);
  connecting_.reset();
  connected_ = std::move(made);
  aborted_ = false;
}

void BackendGroup::disconnect() {
  Backends connected;
  bool aborted = false;
  {
    MutexLock lock(mutex_);
    connected = std::move(connected_);
    connected_.clear();
    aborted = aborted_;
  }
  if (!aborted) finish_joined();
  drop_recordings();
  if (!aborted) abort_all(connected);
  for (const auto& checked : checked_) {
    checked->use(nullptr);
    checked->forget_launched();
  }
}

/// Lets the collectives that all ranks have joined come to their end, and finds out which have. The host
/// waits for none of them on GPUs: they may be those of a run that went well, and to cut them off would leave
/// each replica with other sums.
void BackendGroup::finish_joined() {
  constexpr auto kLongest = std::chrono::seconds(10);
  const auto deadline =
      std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout_, kLongest);
  uint64_t end = order_->joined_by_all();
  uint64_t num_intact = 0;
  for (bool is_running = true; is_running;) {
    num_intact = end;
    is_running = false;
    for (const auto& checked : checked_) {
      const auto open = checked->first_open(end);
      if (!open.is_running) end = open.place;  // those behind one that has failed may never end
      is_running = is_running || open.is_running;
      num_intact = std::min(num_intact, open.place);
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
    if (is_running) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  MutexLock lock(mutex_);
  num_intact_ = num_intact;
}

void BackendGroup::check_launched() {
  for (const auto& checked : checked_) checked->check_launched();
}

void BackendGroup::enter() {
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
  order_->enter();
  on_host_.enter();
}

void BackendGroup::leave(int replica) {
  checked_[static_cast<size_t>(replica)]->check_launched();
  order_->leave(replica);
  on_host_.leave(replica);
}

void BackendGroup::check_complete() {
  order_->check_complete();
  on_host_.check_complete();
  check_launched();
}

void BackendGroup::release(const std::string& reason) {
  order_->abort(reason);
  on_host_.release(reason);
}

void BackendGroup::abort(const std::string& reason) {
  release(reason);
  std::shared_ptr<BackendConnection> connecting;
  Backends connected;
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    connecting = connecting_;
    is_first = !std::exchange(aborted_, true);
    if (is_first) connected = connected_;
  }
  if (connecting) connecting->abort(reason);
  if (!is_first) return;
  if (!connected.empty()) finish_joined();
  drop_recordings();
  abort_all(connected);
}

void BackendGroup::record(int replica, const std::shared_ptr<GraphRecording>& recording) {
  const auto& checked = checked_[static_cast<size_t>(replica)];
  checked->capture(recording != nullptr);
  if (!recording) return;
  recording->observe([checked] { return checked->begin_replay(); });
  MutexLock lock(mutex_);
  std::erase_if(recordings_, [](const auto& known) { return known.expired(); });
  recordings_.push_back(recording);
}

uint64_t BackendGroup::num_joined(int replica) const {
  return order_->num_joined(replica);
}

uint64_t BackendGroup::num_intact() const {
  MutexLock lock(mutex_);
  return num_intact_;
}

/// NCCL's communicators do not end, nor abort, while a graph has their kernels.
void BackendGroup::drop_recordings() {
  std::vector<std::weak_ptr<GraphRecording>> recordings;
  {
    MutexLock lock(mutex_);
    recordings.swap(recordings_);
  }
  for (const auto& weak : recordings) {
    if (const auto recording = weak.lock()) recording->drop();
  }
}

void BackendGroup::reset() {
  disconnect();
  order_->reset();
  on_host_.reset();
}

}  // namespace lockstep
