#pragma once

#include <arrow/io/interfaces.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/datasets/stores/read_times.h"

namespace lockstep {

/// A file that reads from another one. Remembers whether a read has failed, which damaged bytes do not show.
/// Adds to `times` the bytes and, at its end, the time for which reads were under way. That time is taken off
/// ReadPart::kDecode, within which files are read.
class WatchedFile : public arrow::io::RandomAccessFile {
 public:
  /// `size` is that of the file, in bytes. Without `times`, nothing is measured.
  WatchedFile(std::shared_ptr<arrow::io::RandomAccessFile> file, int64_t size,
              std::shared_ptr<ReadTimes> times);
  ~WatchedFile() override;
  WatchedFile(const WatchedFile&) = delete;
  WatchedFile& operator=(const WatchedFile&) = delete;

  /// Returns whether a read has brought an error, or fewer bytes than the file has there. Thread-safe.
  bool has_failed() const { return has_failed_; }

  arrow::Status Close() override;
  bool closed() const override;
  arrow::Result<int64_t> GetSize() override;
  arrow::Result<int64_t> Tell() const override;
  arrow::Status Seek(int64_t position) override;
  bool supports_zero_copy() const override;
  arrow::Status WillNeed(const std::vector<arrow::io::ReadRange>& ranges) override;
  arrow::Result<std::shared_ptr<const arrow::KeyValueMetadata>> ReadMetadata() override;
  arrow::Result<int64_t> Read(int64_t size, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override;
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t size, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t size) override;

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Function>
  auto watched(int64_t expected, Function function) -> decltype(function());
  int64_t left_at(int64_t position, int64_t size) const;
  void begin();
  void end();

  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  int64_t size_;
  std::shared_ptr<ReadTimes> times_;
  std::atomic<bool> has_failed_{false};
  std::mutex mutex_;  // guards all below
  int reading_ = 0;
  Clock::time_point since_;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace lockstep
