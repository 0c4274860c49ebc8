#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {

/// The parts of reading Parquet files that ReadTimes tells apart.
enum class ReadPart {
  kStore,   ///< reads of a file's bytes are under way, from a disk or a store
  kDecode,  ///< decompressing and decoding row groups, while no read of theirs is under way
  kWait,    ///< get_batch() waits until its row groups are decoded
};

/// Adds up how long the parts of reading Parquet files take, each in seconds of the threads that do it, and
/// how much they read. All functions are thread-safe.
///
/// Example:
///
///     ParquetDataset clicks({.paths = {"clicks/*.parquet"}});
///     const ReadTimes& times = clicks.read_times();
///     std::cout << times.store_bytes() / times.seconds(ReadPart::kStore) * 1e-6 << " MB/s\n";
class ReadTimes {
 public:
  /// Returns the seconds that a part has taken.
  double seconds(ReadPart part) const { return static_cast<double>(of(part).load()) * 1e-9; }
  /// Returns the bytes that were read from files, as they are stored.
  int64_t store_bytes() const { return store_bytes_.load(); }
  /// Returns the rows, and the bytes of their tensors, that were decoded.
  int64_t decoded_rows() const { return decoded_rows_.load(); }
  int64_t decoded_bytes() const { return decoded_bytes_.load(); }

  /// Returns `function()`, and adds the time that it takes, also if it throws. Without `times`, it only calls
  /// the function.
  template <typename Fn>
  static auto timed(ReadTimes* times, ReadPart part, Fn&& function) {
    const Timer timer(times, part);
    return std::forward<Fn>(function)();
  }

  void add(ReadPart part, std::chrono::nanoseconds duration) { of(part) += duration.count(); }
  void add_store_bytes(int64_t bytes) { store_bytes_ += bytes; }
  void add_decoded(int64_t rows, int64_t bytes) {
    decoded_rows_ += rows;
    decoded_bytes_ += bytes;
  }

 private:
  class Timer {
   public:
    Timer(ReadTimes* times, ReadPart part) : times_(times), part_(part), begin_(Clock::now()) {}
    ~Timer() {
      if (times_ != nullptr) times_->add(part_, Clock::now() - begin_);
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    using Clock = std::chrono::steady_clock;

    ReadTimes* times_;
    ReadPart part_;
    Clock::time_point begin_;
  };

  std::atomic<int64_t>& of(ReadPart part) { return nanoseconds_[static_cast<size_t>(part)]; }
  const std::atomic<int64_t>& of(ReadPart part) const { return nanoseconds_[static_cast<size_t>(part)]; }

  std::array<std::atomic<int64_t>, 3> nanoseconds_{};
  std::atomic<int64_t> store_bytes_{0};
  std::atomic<int64_t> decoded_rows_{0};
  std::atomic<int64_t> decoded_bytes_{0};
};

}  // namespace lockstep
