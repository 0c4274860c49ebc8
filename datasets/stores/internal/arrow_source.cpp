#include "lockstep/datasets/stores/internal/arrow_source.h"

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/file.h>
#include <arrow/util/key_value_metadata.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/open_file.h"
#include "lockstep/datasets/stores/internal/arrow_store.h"
#include "lockstep/datasets/stores/internal/data_uri.h"
#include "lockstep/datasets/stores/internal/timed_file.h"

namespace lockstep {

namespace {

[[noreturn]] void throw_changed(const std::string& name) {
  throw DataError(name + ": the file has changed since it was opened");
}

class LocalSource : public ArrowSource {
 public:
  explicit LocalSource(const std::string& path) : file_(path), version_(file_.version()) {}

  const std::string& name() const override { return file_.path(); }
  int64_t size() const override { return static_cast<int64_t>(version_.size); }
  bool is_stored() const override { return false; }
  std::string explained(const std::string& reason) const override { return reason; }

  std::shared_ptr<arrow::io::RandomAccessFile> open() const override {
    if (file_.version() != version_) throw_changed(name());
    auto opened = arrow::io::ReadableFile::Open(file_.duplicate());
    if (!opened.ok()) throw DataError(name() + ": " + opened.status().message());
    return std::move(opened).ValueUnsafe();
  }

 private:
  OpenFile file_;
  FileVersion version_;
};

/// A version of an object. Stores without entity tags have the time of the last change.
struct ObjectVersion {
  int64_t size = 0;
  std::string tag{};
  int64_t modified_ns = 0;

  bool operator==(const ObjectVersion&) const = default;
};

class StoredSource : public ArrowSource {
 public:
  StoredSource(const DataUri& uri, int attempts)
      : store_(uri, attempts), name_(uri.name()), file_(store_.file_of(uri.path)) {
    first_ = open_any();
    version_ = version_of(*first_);
  }

  const std::string& name() const override { return name_; }
  int64_t size() const override { return version_.size; }
  bool is_stored() const override { return true; }
  std::string explained(const std::string& reason) const override { return store_.explained(reason); }

  std::shared_ptr<arrow::io::RandomAccessFile> open() const override {
    {
      const std::scoped_lock lock(mutex_);
      if (first_) return std::exchange(first_, nullptr);
    }
    auto opened = open_any();
    if (version_of(*opened) != version_) throw_changed(name_);
    return opened;
  }

 private:
  template <typename T>
  T value_or_throw(arrow::Result<T> result) const {
    return store_.value_or_throw(name_, std::move(result));
  }

  std::shared_ptr<arrow::io::RandomAccessFile> open_any() const {
    return value_or_throw(store_.files().OpenInputFile(file_));
  }

  ObjectVersion version_of(arrow::io::RandomAccessFile& file) const {
    ObjectVersion version{.size = value_or_throw(file.GetSize())};
    if (const auto metadata = value_or_throw(file.ReadMetadata()))
      for (const char* key : {"ETag", "etag"})
        if (version.tag.empty()) version.tag = metadata->Get(key).ValueOr("");
    if (version.tag.empty())
      version.modified_ns =
          value_or_throw(store_.files().GetFileInfo(file_)).mtime().time_since_epoch().count();
    return version;
  }

  ArrowStore store_;
  std::string name_;
  std::string file_;  // as the store calls it
  ObjectVersion version_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<arrow::io::RandomAccessFile> first_;  // for the first reader: opening is a request
};

/// Returns `function()`, whose time is the store's, as that of timed_file() is.
template <typename Fn>
auto timed_store(ReadTimes& times, Fn function) {
  const auto begin = std::chrono::steady_clock::now();
  auto value = function();
  const auto duration = std::chrono::steady_clock::now() - begin;
  times.add(ReadPart::kStore, duration);
  times.add(ReadPart::kDecode, -duration);
  return value;
}

class TimedSource : public ArrowSource {
 public:
  TimedSource(std::unique_ptr<const ArrowSource> source, std::shared_ptr<ReadTimes> times)
      : source_(std::move(source)), times_(std::move(times)) {}

  const std::string& name() const override { return source_->name(); }
  int64_t size() const override { return source_->size(); }
  bool is_stored() const override { return source_->is_stored(); }
  std::string explained(const std::string& reason) const override { return source_->explained(reason); }
  std::shared_ptr<arrow::io::RandomAccessFile> open() const override {
    return timed_file(timed_store(*times_, [&] { return source_->open(); }), times_);
  }

 private:
  std::unique_ptr<const ArrowSource> source_;
  std::shared_ptr<ReadTimes> times_;
};

}  // namespace

std::unique_ptr<const ArrowSource> open_source(const std::string& path, int store_attempts,
                                               std::shared_ptr<ReadTimes> times) {
  if (times) {
    auto source = timed_store(*times, [&] { return open_source(path, store_attempts); });
    return std::make_unique<const TimedSource>(std::move(source), std::move(times));
  }
  const std::string local = without_file_scheme(path);
  if (is_uri(local)) return std::make_unique<const StoredSource>(parse_uri(local), store_attempts);
  return std::make_unique<const LocalSource>(local);
}

}  // namespace lockstep
