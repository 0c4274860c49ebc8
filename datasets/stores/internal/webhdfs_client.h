#pragma once

#include <arrow/result.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/datasets/stores/internal/data_uri.h"
#include "lockstep/datasets/stores/internal/http_client.h"

namespace lockstep {

/// A file or a folder of HDFS.
struct WebHdfsEntry {
  std::string name;  ///< within its folder; empty: it is the path that was asked for
  bool is_folder = false;
  bool is_file = false;
  int64_t length = 0;
  int64_t modified_ms = 0;  ///< since 1970
  int64_t id = 0;           ///< of the file, which a file that replaces it does not share; 0: none is known
};

/// Reads HDFS by its HTTP interface, which is described in Hadoop's documentation as "WebHDFS REST API".
/// Requests that may succeed later are repeated. All functions block, and are thread-safe.
class WebHdfsClient {
 public:
  /// Sends nothing yet. A request is sent at most `attempts` times. Throws DataError naming the URI if it has
  /// a password or an unknown option.
  WebHdfsClient(const DataUri& uri, int attempts);

  /// Returns nothing if there is no such file or folder.
  arrow::Result<std::optional<WebHdfsEntry>> entry(const std::string& path);
  /// Returns the entries of a folder in any order, and nothing if there is no such folder.
  arrow::Result<std::optional<std::vector<WebHdfsEntry>>> entries(const std::string& folder);
  /// Reads from a byte of a file until `target` is full, or the file ends. Returns how many bytes it read.
  arrow::Result<int64_t> read(const std::string& path, int64_t offset, std::span<char> target);

 private:
  arrow::Result<std::optional<HttpAnswer>> get(const std::string& path, const std::string& operation,
                                               std::span<char> target = {});
  std::string without_token(std::string text) const;

  DataUri server_;  // its query says who asks
  std::string token_;
  int attempts_;
  HttpClient http_;
};

}  // namespace lockstep
