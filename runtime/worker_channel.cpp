#include "lockstep/runtime/worker_channel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

// What a worker is shown of another's call where the two differ.
constexpr int64_t kTextBytes = 1024;

/// FNV-1a: the same on every machine, which std::hash need not be.
int64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
  return static_cast<int64_t>(hash);
}

/// Each worker's tensor, in the order of ranks.
std::vector<at::Tensor> gather_all(c10d::Backend& backend, const at::Tensor& own) {
  std::vector<std::vector<at::Tensor>> parts(1);
  for (int rank = 0; rank < backend.getSize(); ++rank) parts[0].push_back(at::empty_like(own));
  std::vector<at::Tensor> inputs{own};
  backend.allgather(parts, inputs)->wait();
  return parts[0];
}

}  // namespace

WorkerChannel::WorkerChannel(Options options)
    : options_(std::move(options)), thread_([this] { carry_on(); }) {}

WorkerChannel::~WorkerChannel() {
  bool is_healthy = false;
  {
    MutexLock lock(mutex_);
    is_healthy = !is_carrying_ && submitted_.empty() && !error_;
    is_ending_ = is_healthy;
    changed_.notify_all();
  }
  if (!is_healthy) {
    fail(std::make_exception_ptr(CollectiveAborted("[" + options_.op + "] the channel is closed")));
    MutexLock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
  if (is_healthy) options_.retire(options_.backend);
}

void WorkerChannel::begin_run() {
  MutexLock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  is_first_of_run_ = true;
}

void WorkerChannel::submit(uint64_t sequence, Exchange exchange) {
  std::exception_ptr error;
  {
    MutexLock lock(mutex_);
    error = error_;
    if (!error) {
      submitted_.emplace(sequence, std::move(exchange));
      changed_.notify_all();
      return;
    }
  }
  exchange.finish(error);
}

void WorkerChannel::exchange(const std::string& description, std::function<Works(c10d::Backend&)> start) {
  std::promise<void> done;
  uint64_t sequence = 0;
  {
    MutexLock lock(mutex_);
    sequence = num_exchanges_++;
  }
  submit(sequence, {description, std::move(start), [&done](const std::exception_ptr& error) {
                      if (error) {
                        done.set_exception(error);
                      } else {
                        done.set_value();
                      }
                    }});
  done.get_future().get();
}

void WorkerChannel::fail(std::exception_ptr error) {
  cut_off(std::move(error), /*is_reported=*/true);
}

void WorkerChannel::cut_off(std::exception_ptr error, bool is_reported) {
  std::map<uint64_t, Exchange> dropped;
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    is_first = !error_;
    if (is_first) error_ = std::move(error);
    error = error_;
    dropped.swap(submitted_);
  }
  if (is_first) {
    if (is_reported) options_.report(error);
    options_.backend->abort();
  }
  for (auto& [sequence, exchange] : dropped) exchange.finish(error);
}

void WorkerChannel::carry_on() {
  while (true) {
    Exchange exchange;
    uint64_t sequence = 0;
    {
      MutexLock lock(mutex_);
      while (!is_ending_ && (submitted_.empty() || submitted_.begin()->first != next_)) changed_.wait(mutex_);
      if (is_ending_) return;
      is_carrying_ = true;
      auto first = submitted_.extract(submitted_.begin());
      exchange = std::move(first.mapped());
      sequence = next_++;
      if (std::exchange(is_first_of_run_, false)) exchange.description += ", the first of a run";
    }
    std::exception_ptr error;
    try {
      carry(sequence, exchange);
    } catch (...) {
      error = std::current_exception();
    }
    if (error) {
      bool is_consequence = false;
      {
        MutexLock lock(mutex_);
        is_consequence = error_ != nullptr;
      }
      // A mismatch is known to all workers, and what the backend says is known to them by itself.
      if (!is_consequence) cut_off(options_.explain(error), /*is_reported=*/false);
    }
    {
      MutexLock lock(mutex_);
      is_carrying_ = false;
      if (error) error = error_;
    }
    exchange.finish(error);
  }
}

void WorkerChannel::carry(uint64_t sequence, const Exchange& exchange) {
  const at::NoGradGuard no_grad;
  check_same(sequence, exchange.description);
  if (!exchange.start) return;
  for (const auto& work : exchange.start(*options_.backend)) work->wait();
}

/// The backend matches calls by their order alone, and would add up what does not belong together.
void WorkerChannel::check_same(uint64_t sequence, const std::string& description) {
  c10d::Backend& backend = *options_.backend;
  const at::Tensor own = at::empty({1}, at::kLong);
  *own.mutable_data_ptr<int64_t>() = hash_of(description);
  const auto all = gather_all(backend, own);
  const auto differs = [&](const at::Tensor& other) {
    return *other.const_data_ptr<int64_t>() != *own.const_data_ptr<int64_t>();
  };
  if (std::none_of(all.begin(), all.end(), differs)) return;

  const at::Tensor text = at::zeros({kTextBytes}, at::kByte);
  const auto length = std::min<size_t>(description.size(), kTextBytes - 1);
  std::memcpy(text.mutable_data_ptr<uint8_t>(), description.data(), length);
  const auto texts = gather_all(backend, text);
  const auto text_of = [&](size_t worker) {
    return std::string(reinterpret_cast<const char*>(texts[worker].const_data_ptr<uint8_t>()));
  };
  // Every worker names the same two.
  size_t other = 1;
  while (other + 1 < all.size() && all[other].equal(all[0])) ++other;
  throw CollectiveMismatch(c10::str("[", options_.op, "] collective #", sequence, ": ", options_.name_of(0),
                                    " called ", text_of(0), ", but ",
                                    options_.name_of(static_cast<int>(other)), " called ", text_of(other)));
}

}  // namespace lockstep
