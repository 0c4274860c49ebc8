#include "lockstep/datasets/stores/internal/data_uri.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {

namespace {

constexpr std::string_view kSeparator = "://";

bool is_alphanumeric(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

// Shorter texts than any credentials would garble the message.
void replace_all(std::string& text, std::string_view part) {
  constexpr size_t kShortest = 4;
  if (part.size() < kShortest) return;
  constexpr std::string_view kInstead = "***";
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + kInstead.size()))
    text.replace(at, part.size(), kInstead);
}

/// A bucket has no port, so that a colon in it is of credentials with an unescaped slash.
void check_authority(const DataUri& uri) {
  const size_t colon = uri.authority.find(':');
  const bool has_port = colon != std::string::npos &&
                        uri.authority.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (colon != std::string::npos && !(is_hadoop(uri) && has_port))
    throw DataError(uri.scheme +
                    "://...: expected a bucket or a host after ://, but got a text with a colon. In "
                    "credentials, write / as %2F and @ as %40, or leave them to the environment");
}

}  // namespace

std::string uri_unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char value = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::string uri_escaped(std::string_view text) {
  constexpr std::string_view kPlain = "/-._~";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto value = static_cast<unsigned char>(c);
    if (is_alphanumeric(c) || kPlain.find(c) != std::string_view::npos)
      result += c;
    else
      result += {'%', kDigits[value / 16], kDigits[value % 16]};
  }
  return result;
}

bool is_hadoop(const DataUri& uri) {
  return uri.scheme == "hdfs" || uri.scheme == "viewfs" || is_webhdfs(uri);
}

bool is_webhdfs(const DataUri& uri) {
  return uri.scheme == "webhdfs" || uri.scheme == "swebhdfs";
}

std::string DataUri::with_path(std::string_view other) const {
  return scheme + std::string(kSeparator) + credentials + (credentials.empty() ? "" : "@") + authority +
         uri_escaped(other) + (query.empty() ? "" : "?" + query);
}

std::string DataUri::name() const {
  return scheme + std::string(kSeparator) + authority + path;
}

std::string DataUri::without_credentials(std::string text) const {
  // Names of users are no secrets there, and passwords are refused.
  if (is_webhdfs(*this)) return text;
  const size_t colon = credentials.find(':');
  const std::string user = credentials.substr(0, colon);
  const std::string secret = colon == std::string::npos ? "" : credentials.substr(colon + 1);
  for (const std::string& part : {secret, user}) {
    replace_all(text, part);
    replace_all(text, uri_unescaped(part));
  }
  return text;
}

bool is_uri(std::string_view text) {
  const size_t end = text.find(kSeparator);
  return end != std::string_view::npos && end > 0 && std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char c) { return is_alphanumeric(c) || c == '+' || c == '-' || c == '.'; });
}

DataUri parse_uri(std::string_view text) {
  constexpr std::array<std::string_view, 8> kSchemes{"file", "s3",     "gs",      "gcs",
                                                     "hdfs", "viewfs", "webhdfs", "swebhdfs"};
  DataUri uri;
  uri.scheme = text.substr(0, text.find(kSeparator));
  if (std::find(kSchemes.begin(), kSchemes.end(), uri.scheme) == kSchemes.end())
    throw DataError(uri.scheme + "://...: expected a URI that begins with file, s3, gs, hdfs or webhdfs");
  text.remove_prefix(std::min(text.size(), uri.scheme.size() + kSeparator.size()));

  const size_t query = text.find('?');
  if (query != std::string_view::npos) uri.query = text.substr(query + 1);
  text = text.substr(0, query);
  const size_t slash = std::min(text.find('/'), text.size());
  uri.authority = text.substr(0, slash);
  uri.path = uri_unescaped(text.substr(slash));

  const size_t at = uri.authority.rfind('@');
  if (at != std::string::npos) {
    uri.credentials = uri.authority.substr(0, at);
    uri.authority.erase(0, at + 1);
  }
  check_authority(uri);
  return uri;
}

std::string without_file_scheme(const std::string& text) {
  constexpr std::string_view kFile = "file://";
  if (!text.starts_with(kFile)) return text;
  const DataUri uri = parse_uri(text);
  if (uri.authority.empty() || uri.authority == "localhost") return uri.path;
  throw DataError(uri.name() + ": expected file:///, and a path of this machine");
}

}  // namespace lockstep
