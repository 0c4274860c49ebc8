#include "lockstep/datasets/stores/internal/watched_file.h"

#include <arrow/buffer.h>
#include <arrow/result.h>

#include <algorithm>
#include <utility>

namespace lockstep {

namespace {

using arrow::Result;
using arrow::Status;

int64_t bytes_of(int64_t bytes) {
  return bytes;
}

int64_t bytes_of(const std::shared_ptr<arrow::Buffer>& bytes) {
  return bytes->size();
}

}  // namespace

WatchedFile::WatchedFile(std::shared_ptr<arrow::io::RandomAccessFile> file, int64_t size,
                         std::shared_ptr<ReadTimes> times)
    : file_(std::move(file)), size_(size), times_(std::move(times)) {}

WatchedFile::~WatchedFile() {
  if (!times_) return;
  times_->add(ReadPart::kStore, waited_);
  times_->add(ReadPart::kDecode, -waited_);
}

/// Returns how many of `size` bytes the file has from a position on.
int64_t WatchedFile::left_at(int64_t position, int64_t size) const {
  return std::min(size, size_ - std::clamp<int64_t>(position, 0, size_));
}

template <typename Function>
auto WatchedFile::watched(int64_t expected, Function function) -> decltype(function()) {
  if (times_) begin();
  auto read = function();
  if (times_) end();
  if (read.ok() && times_) times_->add_store_bytes(bytes_of(*read));
  if (!read.ok() || bytes_of(*read) < expected) has_failed_ = true;
  return read;
}

// Reads at the same time count once.
void WatchedFile::begin() {
  const std::scoped_lock lock(mutex_);
  if (reading_++ == 0) since_ = Clock::now();
}

void WatchedFile::end() {
  const std::scoped_lock lock(mutex_);
  if (--reading_ == 0) waited_ += Clock::now() - since_;
}

Status WatchedFile::Close() {
  return file_->Close();
}

bool WatchedFile::closed() const {
  return file_->closed();
}

Result<int64_t> WatchedFile::GetSize() {
  return file_->GetSize();
}

Result<int64_t> WatchedFile::Tell() const {
  return file_->Tell();
}

Status WatchedFile::Seek(int64_t position) {
  return file_->Seek(position);
}

bool WatchedFile::supports_zero_copy() const {
  return file_->supports_zero_copy();
}

Status WatchedFile::WillNeed(const std::vector<arrow::io::ReadRange>& ranges) {
  return file_->WillNeed(ranges);
}

Result<std::shared_ptr<const arrow::KeyValueMetadata>> WatchedFile::ReadMetadata() {
  return file_->ReadMetadata();
}

// Reads without a position may end early.
Result<int64_t> WatchedFile::Read(int64_t size, void* out) {
  return watched(0, [&] { return file_->Read(size, out); });
}

Result<std::shared_ptr<arrow::Buffer>> WatchedFile::Read(int64_t size) {
  return watched(0, [&] { return file_->Read(size); });
}

Result<int64_t> WatchedFile::ReadAt(int64_t position, int64_t size, void* out) {
  return watched(left_at(position, size), [&] { return file_->ReadAt(position, size, out); });
}

Result<std::shared_ptr<arrow::Buffer>> WatchedFile::ReadAt(int64_t position, int64_t size) {
  return watched(left_at(position, size), [&] { return file_->ReadAt(position, size); });
}

}  // namespace lockstep
