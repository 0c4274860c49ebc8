#include "lockstep/apps/shared/command_line/resume_command.h"

namespace lockstep::apps {
namespace {

bool is_plain(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  return !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
}

std::string quoted_word(const std::string& word) {
  if (is_plain(word)) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace

std::string resume_command(const std::string& program, const std::vector<std::string>& arguments) {
  std::string command = quoted_word(program);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--resume") {
      ++i;  // skips its value
    } else if (!arguments[i].starts_with("--resume=")) {
      command += " " + quoted_word(arguments[i]);
    }
  }
  return command;
}

}  // namespace lockstep::apps
