#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The parts of a URI of data files, such as s3://key:secret@bucket/clicks/day_*.parquet?region=eu-west-1.
struct DataUri {
  std::string scheme;       ///< file, s3, gs, gcs, hdfs, viewfs, webhdfs or swebhdfs
  std::string credentials;  ///< before the @, as written; empty: none
  std::string authority;    ///< a bucket, or a host and a port
  std::string path;         ///< empty, or begins with /; characters that the URI escaped are plain here
  std::string query;        ///< without the ?, as written

  /// Returns the URI of another path, with everything else as here.
  std::string with_path(std::string_view other) const;
  /// Returns the URI for messages: without credentials and query.
  std::string name() const;
  /// Replaces the credentials in a text by asterisks.
  std::string without_credentials(std::string text) const;
};

/// Returns true for texts that begin with a scheme and ://.
bool is_uri(std::string_view text);

/// Throws DataError, which does not show credentials, if the text is not a URI with a supported scheme.
DataUri parse_uri(std::string_view text);

/// Returns a text for a URI's path, or for a value in its query, with % instead of special characters.
std::string uri_escaped(std::string_view text);
std::string uri_unescaped(std::string_view text);

/// Returns true for the schemes of Hadoop, whose authority is a host with an optional port.
bool is_hadoop(const DataUri& uri);
/// Returns true for the schemes of HDFS over HTTP.
bool is_webhdfs(const DataUri& uri);

/// Returns the local path that a file:// URI names, and every other text as it is.
std::string without_file_scheme(const std::string& text);

}  // namespace lockstep
