#include "lockstep/datasets/stores/internal/webhdfs_client.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/stores/internal/retry_delay.h"

namespace lockstep {

namespace {

constexpr int kSucceeded = 200;
constexpr int kNotFound = 404;

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value != nullptr ? value : "";
}

HttpClient::Options http_options(const DataUri& uri) {
  constexpr std::string_view kTimeout = "timeout_seconds=";
  constexpr int kLongest = 3600;
  HttpClient::Options options;
  options.only_https = uri.scheme == "swebhdfs";
  if (uri.query.empty()) return options;
  const char* end = uri.query.data() + uri.query.size();
  const char* begin = uri.query.data() + std::min(kTimeout.size(), uri.query.size());
  if (!uri.query.starts_with(kTimeout) || std::from_chars(begin, end, options.silence_seconds).ptr != end ||
      options.silence_seconds < 1 || options.silence_seconds > kLongest)
    throw DataError(uri.name() +
                    ": expected no query, or ?timeout_seconds= and a number of seconds from 1 to 3600");
  return options;
}

/// Returns where requests go to, and who sends them.
DataUri server_of(const DataUri& uri, const std::string& token) {
  const bool is_secure = uri.scheme == "swebhdfs";
  if (uri.authority.empty() || uri.authority[0] == ':')
    throw DataError(uri.name() + ": expected the namenode's host after ://");
  if (uri.credentials.find(':') != std::string::npos)
    throw DataError(uri.name() +
                    ": expected a user's name before the @, but got a password, too, which WebHDFS does not "
                    "know. LOCKSTEP_WEBHDFS_TOKEN takes a delegation token");
  DataUri server{.scheme = is_secure ? "https" : "http", .authority = uri.authority};
  if (server.authority.find(':') == std::string::npos) server.authority += is_secure ? ":9871" : ":9870";
  const std::string user =
      uri.credentials.empty() ? environment("HADOOP_USER_NAME") : uri_unescaped(uri.credentials);
  // The token says who asks, and a request with both is refused.
  if (!token.empty())
    server.query = "&delegation=" + uri_escaped(token);
  else if (!user.empty())
    server.query = "&user.name=" + uri_escaped(user);
  return server;
}

/// Returns the class and the message of the exception that an answer brings, or nothing.
std::pair<std::string, std::string> exception_of(const HttpAnswer& answer) {
  const auto json = nlohmann::json::parse(answer.text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("RemoteException")) return {};
  const auto& exception = json["RemoteException"];
  if (!exception.is_object()) return {};
  const auto text = [&](const char* key) {
    const auto found = exception.find(key);
    return found != exception.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  return {text("exception"), text("message")};
}

bool may_succeed_later(const HttpAnswer& answer, const std::string& exception) {
  if (!answer.failure.empty()) return answer.is_passing;
  // A namenode that starts, or that has just become the active one.
  if (exception == "RetriableException" || exception == "StandbyException") return true;
  constexpr std::array kPassing{408, 429, 500, 502, 503, 504};
  return std::find(kPassing.begin(), kPassing.end(), answer.status) != kPassing.end();
}

std::string reason_of(const HttpAnswer& answer, const std::string& exception, const std::string& message) {
  if (!answer.failure.empty()) return answer.server + ": " + answer.failure;
  const std::string text = exception.empty() ? "" : ": " + exception + ": " + message;
  return answer.server + " answers HTTP status " + std::to_string(answer.status) + text;
}

WebHdfsEntry entry_of(const nlohmann::json& status) {
  WebHdfsEntry entry;
  const auto type = status.at("type").get<std::string>();
  entry.name = status.at("pathSuffix").get<std::string>();
  entry.is_folder = type == "DIRECTORY";
  entry.is_file = type == "FILE";
  entry.length = status.at("length").get<int64_t>();
  entry.modified_ms = status.at("modificationTime").get<int64_t>();
  entry.id = status.value("fileId", int64_t{0});
  if (entry.length < 0) throw std::out_of_range("length");
  return entry;
}

/// Returns what `function` makes of the answer's JSON, or an error if that is not of WebHDFS.
template <typename Function>
auto parsed(const HttpAnswer& answer, Function function)
    -> arrow::Result<std::optional<decltype(function(nlohmann::json()))>> {
  try {
    return std::optional(function(nlohmann::json::parse(answer.text)));
  } catch (const std::exception&) {
    constexpr size_t kShown = 60;
    return arrow::Status::IOError(answer.server, ": expected an answer of WebHDFS, but got '",
                                  answer.text.substr(0, std::min(kShown, answer.text.find('\n'))), "'");
  }
}

}  // namespace

WebHdfsClient::WebHdfsClient(const DataUri& uri, int attempts)
    : token_(environment("LOCKSTEP_WEBHDFS_TOKEN")), attempts_(attempts), http_(http_options(uri)) {
  server_ = server_of(uri, token_);
}

std::string WebHdfsClient::without_token(std::string text) const {
  for (const std::string& token : {token_, uri_escaped(token_)})
    for (size_t at = token.empty() ? std::string::npos : text.find(token); at != std::string::npos;
         at = text.find(token))
      text.replace(at, token.size(), "***");
  return text;
}

/// Returns nothing if there is no such file.
arrow::Result<std::optional<HttpAnswer>> WebHdfsClient::get(const std::string& path,
                                                            const std::string& operation,
                                                            std::span<char> target) {
  DataUri request = server_;
  request.query = "op=" + operation + server_.query;
  const std::string url = request.with_path("/webhdfs/v1" + (path.empty() ? "/" : path));
  for (int attempt = 1;; ++attempt) {
    HttpAnswer answer = http_.get(url, target);
    if (answer.failure.empty() && answer.status == kSucceeded) return answer;
    const auto [exception, message] = exception_of(answer);
    if (answer.failure.empty() && answer.status == kNotFound &&
        (exception.empty() || exception == "FileNotFoundException"))
      return std::optional<HttpAnswer>();
    if (may_succeed_later(answer, exception) && attempt < attempts_) {
      std::this_thread::sleep_for(retry_delay(attempt - 1));
      continue;
    }
    const std::string requests = attempt > 1 ? " (after " + std::to_string(attempt) + " requests)" : "";
    const std::string reason = without_token(reason_of(answer, exception, message));
    return arrow::Status::IOError(reason.substr(0, reason.find('\n')), requests);
  }
}

arrow::Result<std::optional<WebHdfsEntry>> WebHdfsClient::entry(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(const auto answer, get(path, "GETFILESTATUS"));
  if (!answer) return std::optional<WebHdfsEntry>();
  return parsed(*answer, [](const nlohmann::json& json) { return entry_of(json.at("FileStatus")); });
}

arrow::Result<std::optional<std::vector<WebHdfsEntry>>> WebHdfsClient::entries(const std::string& folder) {
  // The namenode reads its listing in pieces, and sends it as one answer.
  ARROW_ASSIGN_OR_RAISE(const auto answer, get(folder, "LISTSTATUS"));
  if (!answer) return std::optional<std::vector<WebHdfsEntry>>();
  return parsed(*answer, [](const nlohmann::json& json) {
    std::vector<WebHdfsEntry> entries;
    for (const auto& status : json.at("FileStatuses").at("FileStatus")) entries.push_back(entry_of(status));
    return entries;
  });
}

arrow::Result<int64_t> WebHdfsClient::read(const std::string& path, int64_t offset, std::span<char> target) {
  if (target.empty()) return 0;
  ARROW_ASSIGN_OR_RAISE(
      const auto answer,
      get(path, "OPEN&offset=" + std::to_string(offset) + "&length=" + std::to_string(target.size()),
          target));
  if (!answer) return arrow::Status::IOError("there is no such file");
  return static_cast<int64_t>(answer->size);
}

}  // namespace lockstep
