#include "lockstep/runtime/workers/worker_info.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

// Lines of a name, a tab and a value. The first ones are the info's own fields.
constexpr size_t kNumFields = 7;
constexpr int kLastPort = 65535;
// Limit for one worker; the counts of all workers are added up.
constexpr int kMostReplicas = 65536;

void append_escaped(std::string& to, const std::string& text) {
  for (const char character : text) {
    switch (character) {
      case '\\':
        to += "\\\\";
        break;
      case '\t':
        to += "\\t";
        break;
      case '\n':
        to += "\\n";
        break;
      default:
        to += character;
    }
  }
}

std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      plain += text[i];
      continue;
    }
    const char escape = text[++i];
    plain += escape == 't' ? '\t' : escape == 'n' ? '\n' : escape;
  }
  return plain;
}

[[noreturn]] void refuse_info() {
  throw InvalidArgument("[join] expected what a worker tells of itself, but got other bytes");
}

int card_number(const std::string& text, int least, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    refuse_info();
  return number;
}

}  // namespace

std::string WorkerInfo::text() const {
  std::vector<std::pair<std::string, std::string>> lines{{"host", host},
                                                         {"address", address},
                                                         {"heartbeat_port", std::to_string(heartbeat_port)},
                                                         {"heartbeat_session", heartbeat_session},
                                                         {"exchange_port", std::to_string(exchange_port)},
                                                         {"exchange_name", exchange_name},
                                                         {"num_replicas", std::to_string(num_replicas)}};
  lines.insert(lines.end(), facts.begin(), facts.end());
  std::string text;
  for (const auto& [name, value] : lines) {
    append_escaped(text, name);
    text += '\t';
    append_escaped(text, value);
    text += '\n';
  }
  return text;
}

WorkerInfo WorkerInfo::parse(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const size_t tab = text.find('\t', begin);
    if (end == std::string::npos || tab == std::string::npos || tab > end) refuse_info();
    lines.emplace_back(unescaped(std::string_view(text).substr(begin, tab - begin)),
                       unescaped(std::string_view(text).substr(tab + 1, end - tab - 1)));
    begin = end + 1;
  }
  if (lines.size() < kNumFields || lines[0].first != "host" || lines[1].first != "address" ||
      lines[2].first != "heartbeat_port" || lines[3].first != "heartbeat_session" ||
      lines[4].first != "exchange_port" || lines[5].first != "exchange_name" ||
      lines[6].first != "num_replicas")
    refuse_info();
  WorkerInfo info{.host = lines[0].second,
                  .address = lines[1].second,
                  .heartbeat_port = card_number(lines[2].second, 0, kLastPort),
                  .heartbeat_session = lines[3].second,
                  .exchange_port = card_number(lines[4].second, 0, kLastPort),
                  .exchange_name = lines[5].second,
                  .num_replicas = card_number(lines[6].second, 1, kMostReplicas)};
  info.facts.assign(lines.begin() + kNumFields, lines.end());
  // Refuses other spellings, such as 007 for a number, or an escape that its character does not need.
  if (info.text() != text) refuse_info();
  return info;
}

std::optional<WorkerInfo::Difference> WorkerInfo::difference(const WorkerInfo& other) const {
  for (size_t i = 0; i < std::max(facts.size(), other.facts.size()); ++i) {
    if (i >= facts.size()) return Difference{other.facts[i].first, "", other.facts[i].second};
    if (i >= other.facts.size() || other.facts[i].first != facts[i].first)
      return Difference{facts[i].first, facts[i].second, ""};
    if (other.facts[i].second != facts[i].second)
      return Difference{facts[i].first, facts[i].second, other.facts[i].second};
  }
  return std::nullopt;
}

}  // namespace lockstep
