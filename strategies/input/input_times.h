#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {

/// The parts of making a batch that InputTimes tells apart.
enum class InputPart {
  kOrder,    ///< the indices of its examples
  kDataset,  ///< the dataset's get_batch()
  kCopy,     ///< onto the replicas' devices, with device_transform()
  kMap,      ///< functions given to map()
  kWait,     ///< the time for which a loop waits until its next batch is made
};

/// Adds up how long the parts of making batches take. kWait is time of the threads that train, the others are
/// time of the threads that make batches, so several seconds may pass in one second of training. On GPUs,
/// kCopy ends when the copy is enqueued. All functions are thread-safe.
///
/// Example:
///
///     auto times = std::make_shared<InputTimes>();
///     auto batches = strategy.distribute_dataset(clicks, {.global_batch_size = 1024, .times = times});
///     for (const auto& batch : batches) strategy.run(train_step, model, optimizer, batch);
///     std::cout << times->seconds(InputPart::kWait) << " s without a batch\n";
class InputTimes {
 public:
  /// Returns the seconds that a part has taken.
  double seconds(InputPart part) const { return static_cast<double>(of(part).load()) * 1e-9; }
  /// Returns the number of examples that were taken from the dataset for local replicas.
  int64_t examples() const { return examples_.load(); }
  void add_examples(int64_t count) { examples_ += count; }

  /// Returns `function()`, and adds the time that it takes. Without `times`, it only calls the function.
  template <typename Fn>
  static auto timed(InputTimes* times, InputPart part, Fn&& function) {
    const Timer timer(times, part);
    return std::forward<Fn>(function)();
  }

 private:
  using Clock = std::chrono::steady_clock;
  /// Adds the time until its end, also if that is an error's.
  class Timer {
   public:
    Timer(InputTimes* times, InputPart part) : times_(times), part_(part) {
      if (times_ != nullptr) begin_ = Clock::now();
    }
    ~Timer() {
      if (times_ != nullptr) times_->of(part_) += std::chrono::nanoseconds(Clock::now() - begin_).count();
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    InputTimes* times_;
    InputPart part_;
    Clock::time_point begin_;
  };

  std::atomic<int64_t>& of(InputPart part) { return nanoseconds_[static_cast<size_t>(part)]; }
  const std::atomic<int64_t>& of(InputPart part) const { return nanoseconds_[static_cast<size_t>(part)]; }

  std::array<std::atomic<int64_t>, 5> nanoseconds_{};
  std::atomic<int64_t> examples_{0};
};

}  // namespace lockstep
