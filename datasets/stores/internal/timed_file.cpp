#include "lockstep/datasets/stores/internal/timed_file.h"

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>

#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using arrow::Result;
using arrow::Status;

class TimedFile : public arrow::io::RandomAccessFile {
 public:
  TimedFile(std::shared_ptr<arrow::io::RandomAccessFile> file, std::shared_ptr<ReadTimes> times)
      : file_(std::move(file)), times_(std::move(times)) {}
  ~TimedFile() override {
    times_->add(ReadPart::kStore, waited_);
    times_->add(ReadPart::kDecode, -waited_);
  }
  TimedFile(const TimedFile&) = delete;
  TimedFile& operator=(const TimedFile&) = delete;

  Status Close() override { return file_->Close(); }
  bool closed() const override { return file_->closed(); }
  Result<int64_t> GetSize() override { return file_->GetSize(); }
  Result<int64_t> Tell() const override { return file_->Tell(); }
  Status Seek(int64_t position) override { return file_->Seek(position); }
  bool supports_zero_copy() const override { return file_->supports_zero_copy(); }
  Status WillNeed(const std::vector<arrow::io::ReadRange>& ranges) override {
    return file_->WillNeed(ranges);
  }
  Result<std::shared_ptr<const arrow::KeyValueMetadata>> ReadMetadata() override {
    return file_->ReadMetadata();
  }

  Result<int64_t> Read(int64_t size, void* out) override {
    return counted([&] { return file_->Read(size, out); });
  }
  Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override {
    return counted([&] { return file_->Read(size); });
  }
  Result<int64_t> ReadAt(int64_t position, int64_t size, void* out) override {
    return counted([&] { return file_->ReadAt(position, size, out); });
  }
  Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t size) override {
    return counted([&] { return file_->ReadAt(position, size); });
  }

 private:
  using Clock = std::chrono::steady_clock;

  static int64_t bytes_of(int64_t bytes) { return bytes; }
  static int64_t bytes_of(const std::shared_ptr<arrow::Buffer>& bytes) { return bytes->size(); }

  template <typename Function>
  auto counted(Function function) -> decltype(function()) {
    begin();
    auto read = function();
    end();
    if (read.ok()) times_->add_store_bytes(bytes_of(*read));
    return read;
  }

  // Reads at the same time count once.
  void begin() {
    const std::scoped_lock lock(mutex_);
    if (reading_++ == 0) since_ = Clock::now();
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    if (--reading_ == 0) waited_ += Clock::now() - since_;
  }

  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  std::shared_ptr<ReadTimes> times_;
  std::mutex mutex_;  // guards all below
  int reading_ = 0;
  Clock::time_point since_;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace

std::shared_ptr<arrow::io::RandomAccessFile> timed_file(std::shared_ptr<arrow::io::RandomAccessFile> file,
                                                        std::shared_ptr<ReadTimes> times) {
  return std::make_shared<TimedFile>(std::move(file), std::move(times));
}

}  // namespace lockstep
