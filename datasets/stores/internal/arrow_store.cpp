#include "lockstep/datasets/stores/internal/arrow_store.h"

#include <arrow/filesystem/s3fs.h>
#include <arrow/util/config.h>

#include <algorithm>
#include <any>
#include <array>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "lockstep/datasets/stores/internal/retry_delay.h"
#include "lockstep/datasets/stores/internal/webhdfs_files.h"

namespace lockstep {

namespace {

/// Repeats requests that may succeed later, with waits that double up to a limit.
class LimitedRetry : public arrow::fs::S3RetryStrategy {
 public:
  explicit LimitedRetry(int attempts) : attempts_(attempts) {}

  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted_retries) override {
    // The client keeps an answer where the bytes go that were asked for, and fails so if an answer that says
    // why there are none is longer. That the store is busy is then not seen.
    const bool is_unknown = error.message.find("Failed to flush response stream") != std::string::npos;
    return (error.should_retry || is_unknown) && attempted_retries + 1 < attempts_;
  }

  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail&, int64_t attempted_retries) override {
    return retry_delay(attempted_retries).count();
  }

 private:
  int attempts_;
};

/// Arrow's stores must be closed before the process ends.
struct StoresAtExit {
  ~StoresAtExit() { arrow::fs::EnsureFinalized(); }
};

using Files = std::shared_ptr<arrow::fs::FileSystem>;

arrow::Result<Files> connect(const DataUri& uri, int attempts) {
  if (uri.scheme == "s3") {
    // Arrow's wheels keep S3 in a library of its own, which lies beside Arrow's. Other builds of Arrow have
    // it without this library.
    const arrow::Status loaded = arrow::fs::LoadFileSystemFactories("libarrow_s3.so." ARROW_SO_VERSION);
    arrow::fs::FileSystemFactoryOptions options;
    options.emplace_back("retry_strategy", std::shared_ptr<arrow::fs::S3RetryStrategy>(
                                               std::make_shared<LimitedRetry>(attempts)));
    auto files = arrow::fs::FileSystemFromUriAndOptions(uri.with_path("/"), options);
    if (files.ok() || loaded.ok()) return files;
    return files.status().WithMessage(files.status().message(), "; ", loaded.message());
  }
  if (is_webhdfs(uri)) return open_webhdfs(uri, attempts);
  DataUri limited = uri;
  constexpr std::string_view kLimit = "retry_limit_seconds=";
  const bool is_google = uri.scheme == "gs" || uri.scheme == "gcs";
  // Arrow's default is 15 minutes.
  if (is_google && uri.query.find(kLimit) == std::string::npos)
    limited.query += (uri.query.empty() ? "" : "&") + std::string(kLimit) + "30";
  return arrow::fs::FileSystemFromUri(limited.with_path("/"));
}

/// The connections of this process. Arrow keeps its stores' libraries for the process, too.
class OpenStores {
 public:
  static OpenStores& instance() {
    static OpenStores stores;
    return stores;
  }

  arrow::Result<Files> get(const DataUri& uri, int attempts) {
    const std::scoped_lock lock(mutex_);
    std::weak_ptr<arrow::fs::FileSystem>& known = stores_[{uri.with_path("/"), attempts}];
    if (Files files = known.lock()) return files;
    arrow::Result<Files> files = connect(uri, attempts);
    if (files.ok()) known = *files;
    // Made after Arrow's own statics, it ends before them.
    static const StoresAtExit at_exit;
    return files;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::weak_ptr<arrow::fs::FileSystem>> stores_;
};

}  // namespace

ArrowStore::ArrowStore(DataUri uri, int attempts) : uri_(std::move(uri)) {
  files_ = value_or_throw(uri_.name(), OpenStores::instance().get(uri_, attempts));
}

std::string ArrowStore::file_of(const std::string& path) const {
  return is_hadoop(uri_) ? path : uri_.authority + path;
}

std::string ArrowStore::path_of(const std::string& file) const {
  return is_hadoop(uri_) ? file : file.substr(std::min(file.size(), uri_.authority.size()));
}

std::string ArrowStore::explained(const std::string& reason) const {
  constexpr std::array<std::string_view, 12> kRefused{
      "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID",
      "UNRECOGNIZED_CLIENT", "EXPIRED_TOKEN", "PermissionDenied",
      // of WebHDFS
      "AccessControlException", "SecurityException", "InvalidToken", "AuthenticationException",
      "HTTP status 401"};
  const bool is_refused = std::any_of(kRefused.begin(), kRefused.end(), [&](std::string_view name) {
    return reason.find(name) != std::string::npos;
  });
  if (reason.starts_with("Path does not exist")) return "there is no such file, or no such bucket";
  std::string hint;
  if (is_refused) hint = "the store refuses the credentials, or they do not permit to read this: ";
  if (reason.starts_with("Unable to load lib"))
    hint =
        "hdfs:// needs Java and Hadoop's libhdfs. Without them, webhdfs:// and the namenode's HTTP address, "
        "such as webhdfs://namenode:9870/clicks, reads the same files: ";
  return hint + uri_.without_credentials(reason.substr(0, reason.find('\n')));
}

}  // namespace lockstep
