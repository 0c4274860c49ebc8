#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct HttpAnswer {
  int status = 0;          ///< of the last server; 0: none answered
  std::string text{};      ///< the content, unless it was written to the request's target
  size_t size = 0;         ///< bytes written to the request's target
  std::string failure{};   ///< why no whole answer came; empty: one came
  bool is_passing = true;  ///< if there is a failure: another request may succeed
  std::string server{};    ///< the host and the port that answered, or did not
};

/// Sends GET requests by libcurl, and follows redirects. Connections stay open for later requests. Proxies
/// are those of the environment. Thread-safe: each thread that waits for an answer has a connection of its
/// own.
///
/// Example:
///
///     HttpClient client({.silence_seconds = 10});
///     const HttpAnswer answer = client.get("http://namenode:9870/webhdfs/v1/?op=LISTSTATUS");
class HttpClient {
 public:
  struct Options {
    int silence_seconds = 10;  ///< gives up a server that sends no byte for so long
    bool only_https = false;   ///< refuses redirects to plain HTTP
  };

  explicit HttpClient(const Options& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Blocks until the answer has come, or there is none. The content of an answer with status 200 is written
  /// to `target` if that has any bytes; more content than that is a failure.
  HttpAnswer get(const std::string& url, std::span<char> target = {});

 private:
  class Connection;

  std::unique_ptr<Connection> take();

  const Options options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;  // guarded by mutex_
};

}  // namespace lockstep
