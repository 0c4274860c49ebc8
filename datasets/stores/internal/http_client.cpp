#include "lockstep/datasets/stores/internal/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

namespace lockstep {

namespace {

// A listing of a million files takes about so much. More is no answer to any request of ours.
constexpr size_t kMostText = size_t{512} << 20;

/// Returns the host and the port of a URL.
std::string server_of(std::string_view url) {
  const size_t begin = url.find("://");
  if (begin == std::string_view::npos) return {};
  url.remove_prefix(begin + 3);
  return std::string(url.substr(0, url.find_first_of("/?#")));
}

bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_WRITE_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return false;
    default:
      return true;
  }
}

void start_curl() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) throw std::bad_alloc();
}

}  // namespace

/// One of libcurl's handles, which keeps its connections. For one thread at a time.
class HttpClient::Connection {
 public:
  explicit Connection(const Options& options) : handle_(curl_easy_init()) {
    constexpr long kConnectMs = 3000;
    constexpr long kRedirects = 4;
    if (handle_ == nullptr) throw std::bad_alloc();
    const char* protocols = options.only_https ? "https" : "http,https";
    set(CURLOPT_PROTOCOLS_STR, protocols);
    set(CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kRedirects);
    set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.silence_seconds));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_ERRORBUFFER, error_.data());
    set(CURLOPT_USERAGENT, "lockstep");
    // OpenSSL reads this variable, but libcurl sets a path of its own.
    if (const char* file = std::getenv("SSL_CERT_FILE"))  // NOLINT(concurrency-mt-unsafe): nothing sets it
      set(CURLOPT_CAINFO, file);
    set(CURLOPT_WRITEFUNCTION, &Connection::written);
    set(CURLOPT_WRITEDATA, this);
  }
  ~Connection() { curl_easy_cleanup(handle_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  HttpAnswer get(const std::string& url, std::span<char> target) {
    answer_ = {};
    target_ = target;
    error_[0] = '\0';
    set(CURLOPT_URL, url.c_str());
    const CURLcode code = curl_easy_perform(handle_);
    answer_.status = status();
    const char* last = nullptr;
    curl_easy_getinfo(handle_, CURLINFO_EFFECTIVE_URL, &last);
    answer_.server = server_of(last != nullptr ? last : url);
    if (code != CURLE_OK && answer_.failure.empty())
      answer_.failure = error_[0] != '\0' ? error_.data() : curl_easy_strerror(code);
    answer_.is_passing = may_pass(code);
    target_ = {};
    return std::exchange(answer_, {});
  }

 private:
  template <typename T>
  void set(CURLoption option, T value) {
    if (curl_easy_setopt(handle_, option, value) == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  }

  int status() const {
    long status = 0;
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    return static_cast<int>(status);
  }

  static size_t written(char* data, size_t, size_t size, void* connection) {
    return static_cast<Connection*>(connection)->take(data, size) ? size : 0;
  }

  /// Returns false to end the transfer.
  bool take(const char* data, size_t size) {
    constexpr int kOk = 200;
    const bool has_target = !target_.empty() && status() == kOk;
    const size_t before = has_target ? answer_.size : answer_.text.size();
    if (size > (has_target ? target_.size() : kMostText) - before) {
      answer_.failure = "the answer is longer than asked for";
      return false;
    }
    if (has_target) {
      std::memcpy(target_.data() + before, data, size);
      answer_.size += size;
    } else {
      answer_.text.append(data, size);
    }
    return true;
  }

  CURL* handle_;
  std::array<char, CURL_ERROR_SIZE> error_{};
  HttpAnswer answer_;
  std::span<char> target_;
};

HttpClient::HttpClient(const Options& options) : options_(options) {
  start_curl();
}

HttpClient::~HttpClient() = default;

std::unique_ptr<HttpClient::Connection> HttpClient::take() {
  const std::scoped_lock lock(mutex_);
  if (idle_.empty()) return std::make_unique<Connection>(options_);
  auto connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

HttpAnswer HttpClient::get(const std::string& url, std::span<char> target) {
  auto connection = take();
  HttpAnswer answer = connection->get(url, target);
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(connection));
  return answer;
}

}  // namespace lockstep
