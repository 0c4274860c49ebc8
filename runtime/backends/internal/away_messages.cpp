#include "lockstep/runtime/backends/internal/away_messages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/workers/comparing_backend.h"

namespace lockstep {
namespace {

using Works = WorkerChannel::Works;

// Replicas of one worker whose numbers fit into that of a channel.
constexpr int kMostLocal = 256;
static_assert(2 * kMostLocal * kMostLocal <= WorkerChannel::kMostPairChannels);

// A message begins with this many bytes: its tag, dtype, number of dimensions and sizes as numbers of 64
// bits, and its description.
constexpr int64_t kHeadBytes = 1024;
constexpr int64_t kMostDimensions = 64;  // as in LibTorch
constexpr int64_t kNumbers = 3 + kMostDimensions;
constexpr size_t kText = kHeadBytes - kNumbers * sizeof(int64_t) - 1;

struct Head {
  int64_t tag = 0;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes{};
  std::string description{};
};

at::Tensor encode(int64_t tag, const std::string& description, const at::Tensor& value) {
  const at::Tensor head = at::zeros({kHeadBytes}, at::kByte);
  auto* numbers = reinterpret_cast<int64_t*>(head.mutable_data_ptr<uint8_t>());
  numbers[0] = tag;
  numbers[1] = static_cast<int64_t>(value.scalar_type());
  numbers[2] = value.dim();
  for (int64_t i = 0; i < value.dim(); ++i) numbers[3 + i] = value.size(i);
  std::memcpy(numbers + kNumbers, description.data(), std::min(description.size(), kText));
  return head;
}

/// Throws BrokenExchange if the bytes are no head.
Head decode(const at::Tensor& bytes) {
  const auto* numbers = reinterpret_cast<const int64_t*>(bytes.const_data_ptr<uint8_t>());
  Head head{.tag = numbers[0]};
  const bool is_valid = numbers[1] >= 0 && numbers[1] < static_cast<int64_t>(at::ScalarType::Undefined) &&
                        numbers[2] >= 0 && numbers[2] <= kMostDimensions;
  if (is_valid) head.sizes.assign(numbers + 3, numbers + 3 + numbers[2]);
  const bool has_sizes =
      std::all_of(head.sizes.begin(), head.sizes.end(), [](int64_t size) { return size >= 0; });
  if (!is_valid || !has_sizes) throw BrokenExchange("sent a message without a valid head");
  head.dtype = static_cast<at::ScalarType>(numbers[1]);
  const auto* text = reinterpret_cast<const char*>(numbers + kNumbers);
  head.description.assign(text, strnlen(text, kText));
  return head;
}

}  // namespace

AwayMessages::Channel& AwayMessages::channel_between(int from, int to) {
  if (error_) std::rethrow_exception(error_);
  if (const auto known = channels_.find({from, to}); known != channels_.end()) return known->second;
  const int sender = layout_->worker_of(from);
  const int receiver = layout_->worker_of(to);
  const int from_local = from - layout_->first_replica_of(sender);
  const int to_local = to - layout_->first_replica_of(receiver);
  if (from_local >= kMostLocal || to_local >= kMostLocal) {
    throw InvalidArgument(c10::str("[send] expected at most ", kMostLocal,
                                   " replicas of a worker to exchange messages with other workers"));
  }
  // The two directions between two replicas are told apart by who sends.
  const bool is_upward = from < to;
  const int number = is_upward ? from_local * kMostLocal + to_local : to_local * kMostLocal + from_local;
  const int peer = sender == layout_->worker() ? receiver : sender;
  auto channel = channel_->open_pair(peer, 2 * number + (is_upward ? 0 : 1));
  return channels_.emplace(std::pair(from, to), Channel{std::move(channel)}).first->second;
}

/// Takes a place in the channel for the next message.
AwayMessages::Place AwayMessages::next_place(int from, int to) {
  MutexLock lock(mutex_);
  Channel& between = channel_between(from, to);
  between.channel->check_usable();
  return {between.channel, between.next++,
          c10::str("a message from replica ", from, " to replica ", to, " in run ", run_)};
}

void AwayMessages::send(const ReplicaMailbox::Route& route, const std::string& description,
                        const at::Tensor& value) {
  const at::Tensor copy = at::empty(value.sizes(), value.options().device(at::kCPU));
  copy.copy_(value);
  const at::Tensor head = encode(route.tag, description, copy);
  auto place = next_place(route.from, route.to);
  WorkerChannel::Exchange exchange{.description = std::move(place.description), .start = nullptr};
  exchange.start = [head, copy, peer = layout_->worker_of(route.to)](c10d::Backend& backend) {
    std::vector<at::Tensor> first{head};
    std::vector<at::Tensor> second{copy};
    return Works{backend.send(first, peer, 0), backend.send(second, peer, 0)};
  };
  exchange.finish = [](const std::exception_ptr&) {};  // drain() throws it
  place.channel->submit(place.position, std::move(exchange));
}

void AwayMessages::fetch(int from, int to, ReplicaMailbox& mailbox) {
  const auto place = next_place(from, to);
  const auto head = std::make_shared<Head>();
  const auto value = std::make_shared<at::Tensor>();
  place.channel->exchange_at(place.position, place.description,
                             [head, value, peer = layout_->worker_of(from)](c10d::Backend& backend) {
                               std::vector<at::Tensor> first{at::empty({kHeadBytes}, at::kByte)};
                               backend.recv(first, peer, 0)->wait();
                               *head = decode(first[0]);
                               *value = at::empty(head->sizes, head->dtype);
                               std::vector<at::Tensor> second{*value};
                               return Works{backend.recv(second, peer, 0)};
                             });
  mailbox.put({.from = from, .to = to, .tag = head->tag},
              {.description = head->description, .value = *value});
}

void AwayMessages::begin_run() {
  MutexLock lock(mutex_);
  ++run_;
}

void AwayMessages::drain() {
  std::vector<std::shared_ptr<WorkerChannel>> open;
  {
    MutexLock lock(mutex_);
    for (const auto& [pair, between] : channels_) open.push_back(between.channel);
  }
  for (const auto& channel : open) channel->drain();
}

void AwayMessages::close() {
  std::map<std::pair<int, int>, Channel> closed;
  MutexLock lock(mutex_);
  if (!error_) error_ = std::make_exception_ptr(CollectiveAborted("[send] the strategy has been destroyed"));
  closed.swap(channels_);
}

void AwayMessages::fail(const std::exception_ptr& error) {
  std::vector<std::shared_ptr<WorkerChannel>> open;
  {
    MutexLock lock(mutex_);
    if (!error_) error_ = error;
    for (const auto& [pair, between] : channels_) open.push_back(between.channel);
  }
  for (const auto& channel : open) channel->fail(error);
}

}  // namespace lockstep
