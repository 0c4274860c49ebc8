#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace lockstep {

/// Keeps the warnings that LibTorch gives in this thread during its lifetime.
class KeptWarnings : public c10::WarningHandler {
 public:
  KeptWarnings() : guard_(this) {}
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace lockstep
