#include "lockstep/apps/convert_data/conversion_stream.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace lockstep::apps {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{50};

class StreamRunner {
 public:
  explicit StreamRunner(const std::vector<std::unique_ptr<ConversionStream>>& streams) {
    for (const auto& stream : streams) states_.push_back({.stream = stream.get()});
  }

  bool run(const StreamRun& run) {
    std::vector<std::thread> threads;
    try {
      for (int64_t i = 0; i < run.threads; ++i) threads.emplace_back([this] { work(); });
    } catch (...) {
      stop(threads);
      throw;
    }
    bool is_cancelled = false;
    {
      std::unique_lock lock(mutex_);
      while (!is_stopped_ && num_working_threads(run.threads) > 0) {
        changed_.wait_for(lock, kBetweenLooks);
        lock.unlock();
        run.on_wait();
        is_cancelled = run.is_cancelled();
        lock.lock();
        if (is_cancelled) break;
      }
    }
    stop(threads);
    if (error_) std::rethrow_exception(error_);
    return !is_cancelled || is_done();
  }

 private:
  struct State {
    ConversionStream* stream = nullptr;
    bool is_read = false;    // by a thread, now
    bool has_ended = false;  // no block is left
    bool is_finished = false;
    int64_t blocks = 0;   // that were read
    int64_t written = 0;  // blocks
  };

  int64_t num_working_threads(int64_t threads) const { return threads - num_done_; }
  bool is_done() const {
    return std::all_of(states_.begin(), states_.end(), [](const State& state) { return state.is_finished; });
  }

  void stop(std::vector<std::thread>& threads) {
    {
      const std::scoped_lock lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads) thread.join();
  }

  void work() {
    // One block is the work of one thread.
    at::set_num_threads(1);
    std::unique_lock lock(mutex_);
    while (!is_stopped_) {
      if (State* state = free_stream(); state != nullptr) {
        try {
          work_on(*state, lock);
        } catch (...) {
          if (!lock.owns_lock()) lock.lock();
          if (!error_) error_ = std::current_exception();
          is_stopped_ = true;
        }
        changed_.notify_all();
      } else if (std::all_of(states_.begin(), states_.end(), [](const State& s) { return s.has_ended; })) {
        break;
      } else {
        changed_.wait(lock);
      }
    }
    ++num_done_;
    changed_.notify_all();
  }

  /// Returns the stream with the fewest blocks in work, or null if others read all of those that have any.
  State* free_stream() {
    State* best = nullptr;
    for (State& state : states_) {
      if (state.is_read || state.has_ended) continue;
      if (best == nullptr || state.blocks - state.written < best->blocks - best->written) best = &state;
    }
    return best;
  }

  void work_on(State& state, std::unique_lock<std::mutex>& lock) {
    state.is_read = true;
    lock.unlock();
    ConversionStream::Convert convert;
    std::exception_ptr error;  // is thrown after those of the blocks before
    try {
      convert = state.stream->next();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    state.is_read = false;
    const int64_t block = state.blocks;
    if (convert) {
      ++state.blocks;
    } else {
      state.has_ended = true;
    }
    changed_.notify_all();
    lock.unlock();
    ConversionStream::Write write;
    try {
      if (convert) write = convert();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    changed_.wait(lock, [&] { return is_stopped_ || state.written == block; });
    if (is_stopped_) return;
    lock.unlock();
    if (error) std::rethrow_exception(error);
    if (write) write();
    if (!convert) state.stream->finish();
    lock.lock();
    if (convert) ++state.written;
    if (!convert) state.is_finished = true;
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<State> states_;
  int64_t num_done_ = 0;
  bool is_stopped_ = false;
  std::exception_ptr error_;
};

}  // namespace

bool run_streams(const std::vector<std::unique_ptr<ConversionStream>>& streams, const StreamRun& run) {
  return StreamRunner(streams).run(run);
}

}  // namespace lockstep::apps
