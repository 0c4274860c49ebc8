#include "lockstep/datasets/stores/internal/webhdfs_files.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/stores/internal/webhdfs_client.h"

namespace lockstep {

namespace {

using arrow::Result;
using arrow::Status;
using arrow::fs::FileInfo;
using arrow::fs::FileType;

/// A file as it was when it was opened.
class WebHdfsFile : public arrow::io::RandomAccessFile {
 public:
  WebHdfsFile(std::shared_ptr<WebHdfsClient> client, std::string path, WebHdfsEntry entry)
      : client_(std::move(client)), path_(std::move(path)), entry_(std::move(entry)) {}

  Status Close() override {
    is_closed_ = true;
    return Status::OK();
  }
  bool closed() const override { return is_closed_; }
  Result<int64_t> GetSize() override { return entry_.length; }

  // Its version, as stores with entity tags tell it.
  Result<std::shared_ptr<const arrow::KeyValueMetadata>> ReadMetadata() override {
    const std::string tag = std::to_string(entry_.id) + "-" + std::to_string(entry_.modified_ms) + "-" +
                            std::to_string(entry_.length);
    return std::make_shared<const arrow::KeyValueMetadata>(std::vector<std::string>{"ETag"},
                                                           std::vector<std::string>{tag});
  }

  // By several threads at the same time.
  Result<int64_t> ReadAt(int64_t position, int64_t size, void* out) override {
    if (position < 0 || size < 0) return Status::Invalid("expected a place within the file");
    const int64_t expected = std::min(size, std::max<int64_t>(0, entry_.length - position));
    const std::span<char> target(static_cast<char*>(out), static_cast<size_t>(expected));
    ARROW_ASSIGN_OR_RAISE(const int64_t read, client_->read(path_, position, target));
    if (read < expected)
      return Status::IOError("the file has changed since it was opened: expected ", entry_.length,
                             " bytes, but it ends after ", position + read);
    return read;
  }
  Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t size) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(std::max<int64_t>(0, size)));
    ARROW_ASSIGN_OR_RAISE(const int64_t read, ReadAt(position, size, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(read));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

  // By one thread.
  Result<int64_t> Tell() const override { return position_; }
  Status Seek(int64_t position) override {
    position_ = position;
    return Status::OK();
  }
  Result<int64_t> Read(int64_t size, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t read, ReadAt(position_, size, out));
    position_ += read;
    return read;
  }
  Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, size));
    position_ += buffer->size();
    return buffer;
  }

 private:
  std::shared_ptr<WebHdfsClient> client_;
  std::string path_;
  WebHdfsEntry entry_;
  std::atomic<bool> is_closed_{false};
  int64_t position_ = 0;
};

FileInfo info_of(const std::string& path, const WebHdfsEntry& entry) {
  FileInfo info(path, entry.is_folder ? FileType::Directory
                      : entry.is_file ? FileType::File
                                      : FileType::Unknown);
  if (entry.is_file) info.set_size(entry.length);
  info.set_mtime(arrow::fs::TimePoint(std::chrono::milliseconds(entry.modified_ms)));
  return info;
}

class WebHdfsFiles : public arrow::fs::FileSystem {
 public:
  WebHdfsFiles(const DataUri& uri, int attempts) : client_(std::make_shared<WebHdfsClient>(uri, attempts)) {}

  std::string type_name() const override { return "webhdfs"; }
  bool Equals(const FileSystem& other) const override { return this == &other; }

  using FileSystem::GetFileInfo;
  Result<FileInfo> GetFileInfo(const std::string& path) override {
    ARROW_ASSIGN_OR_RAISE(const auto entry, client_->entry(path));
    return entry ? info_of(path, *entry) : FileInfo(path, FileType::NotFound);
  }

  Result<std::vector<FileInfo>> GetFileInfo(const arrow::fs::FileSelector& select) override {
    if (select.recursive) return refused();
    ARROW_ASSIGN_OR_RAISE(const auto entries, client_->entries(select.base_dir));
    std::vector<FileInfo> infos;
    if (!entries && !select.allow_not_found) return Status::IOError("there is no such folder");
    if (!entries) return infos;
    for (const WebHdfsEntry& entry : *entries) {
      if (entry.name.empty()) return Status::IOError("expected a folder, but it is a file");
      infos.push_back(info_of(select.base_dir + "/" + entry.name, entry));
    }
    return infos;
  }

  using FileSystem::OpenInputFile;
  Result<std::shared_ptr<arrow::io::RandomAccessFile>> OpenInputFile(const std::string& path) override {
    ARROW_ASSIGN_OR_RAISE(auto entry, client_->entry(path));
    if (!entry) return Status::IOError("there is no such file");
    if (!entry->is_file) return Status::IOError("expected a file, but it is a folder or a link");
    return std::make_shared<WebHdfsFile>(client_, path, std::move(*entry));
  }
  using FileSystem::OpenInputStream;
  Result<std::shared_ptr<arrow::io::InputStream>> OpenInputStream(const std::string& path) override {
    return OpenInputFile(path);
  }

  // Nothing is written.
  using FileSystem::CreateDir;
  using FileSystem::DeleteDirContents;
  Status CreateDir(const std::string&, bool) override { return refused(); }
  Status DeleteDir(const std::string&) override { return refused(); }
  Status DeleteDirContents(const std::string&, bool) override { return refused(); }
  Status DeleteRootDirContents() override { return refused(); }
  Status DeleteFile(const std::string&) override { return refused(); }
  Status Move(const std::string&, const std::string&) override { return refused(); }
  Status CopyFile(const std::string&, const std::string&) override { return refused(); }
  using FileSystem::OpenAppendStream;
  using FileSystem::OpenOutputStream;
  Result<std::shared_ptr<arrow::io::OutputStream>> OpenOutputStream(
      const std::string&, const std::shared_ptr<const arrow::KeyValueMetadata>&) override {
    return refused();
  }
  Result<std::shared_ptr<arrow::io::OutputStream>> OpenAppendStream(
      const std::string&, const std::shared_ptr<const arrow::KeyValueMetadata>&) override {
    return refused();
  }

 private:
  static Status refused() { return Status::NotImplemented("WebHDFS is only read"); }

  std::shared_ptr<WebHdfsClient> client_;
};

}  // namespace

Result<std::shared_ptr<arrow::fs::FileSystem>> open_webhdfs(const DataUri& uri, int attempts) {
  return std::make_shared<WebHdfsFiles>(uri, attempts);
}

}  // namespace lockstep
