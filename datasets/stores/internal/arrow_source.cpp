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
#include "lockstep/datasets/stores/internal/open_file_pool.h"
#include "lockstep/datasets/stores/internal/read_error.h"

namespace lockstep {

namespace {

[[noreturn]] void throw_changed(const std::string& name) {
  throw ReadError(name + ": the file has changed since it was opened");
}

/// Returns `function()`, whose errors are all of the system.
template <typename Fn>
auto with_read_errors(Fn function) {
  try {
    return function();
  } catch (const DataError& error) {
    throw ReadError(error.what());
  }
}

OpenFilePool& open_files() {
  static OpenFilePool pool(kMostOpenFiles);
  return pool;
}

class LocalSource : public ArrowSource {
 public:
  LocalSource(std::string path, std::shared_ptr<ReadTimes> times)
      : ArrowSource(std::move(times)),
        path_(std::move(path)),
        version_(with_read_errors([this] { return opened()->version(); })) {}
  ~LocalSource() override { open_files().drop(kept_.lock()); }
  LocalSource(const LocalSource&) = delete;
  LocalSource& operator=(const LocalSource&) = delete;

  const std::string& name() const override { return path_; }
  int64_t size() const override { return static_cast<int64_t>(version_.size); }
  bool is_stored() const override { return false; }
  std::string explained(const std::string& reason) const override { return reason; }

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> open_file() const override {
    return with_read_errors([&] {
      const OpenFilePool::File file = opened();
      if (file->version() != version_) throw_changed(path_);
      auto of_reader = arrow::io::ReadableFile::Open(file->duplicate());
      if (!of_reader.ok()) throw ReadError(path_ + ": " + of_reader.status().message());
      return std::move(of_reader).ValueUnsafe();
    });
  }

  OpenFilePool::File opened() const {
    const std::scoped_lock lock(mutex_);
    OpenFilePool::File file = kept_.lock();
    if (!file) kept_ = file = std::make_shared<const OpenFile>(path_);
    return open_files().used(std::move(file));
  }

  std::string path_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const OpenFile> kept_;  // by open_files(), or by a reader; guarded by mutex_
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
  StoredSource(const DataUri& uri, int attempts, std::shared_ptr<ReadTimes> times)
      : ArrowSource(std::move(times)),
        store_(uri, attempts),
        name_(uri.name()),
        file_(store_.file_of(uri.path)) {
    first_ = open_any();
    version_ = version_of(*first_);
  }

  const std::string& name() const override { return name_; }
  int64_t size() const override { return version_.size; }
  bool is_stored() const override { return true; }
  std::string explained(const std::string& reason) const override { return store_.explained(reason); }

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> open_file() const override {
    {
      const std::scoped_lock lock(mutex_);
      if (first_) return std::exchange(first_, nullptr);
    }
    auto opened = open_any();
    if (version_of(*opened) != version_) throw_changed(name_);
    return opened;
  }

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

/// Returns `function()`, whose time is the store's, as that of reads is.
template <typename Fn>
auto timed_store(ReadTimes& times, Fn function) {
  const auto begin = std::chrono::steady_clock::now();
  auto value = function();
  const auto duration = std::chrono::steady_clock::now() - begin;
  times.add(ReadPart::kStore, duration);
  times.add(ReadPart::kDecode, -duration);
  return value;
}

std::unique_ptr<const ArrowSource> source_of(const std::string& path, int store_attempts,
                                             std::shared_ptr<ReadTimes> times) {
  const std::string local = without_file_scheme(path);
  if (is_uri(local))
    return std::make_unique<const StoredSource>(parse_uri(local), store_attempts, std::move(times));
  return std::make_unique<const LocalSource>(local, std::move(times));
}

}  // namespace

std::shared_ptr<WatchedFile> ArrowSource::open() const {
  const auto open = [&] { return open_file(); };
  return std::make_shared<WatchedFile>(times_ ? timed_store(*times_, open) : open(), size(), times_);
}

std::unique_ptr<const ArrowSource> open_source(const std::string& path, int store_attempts,
                                               std::shared_ptr<ReadTimes> times) {
  const auto open = [&] { return source_of(path, store_attempts, times); };
  return times ? timed_store(*times, open) : open();
}

}  // namespace lockstep
