#include "lockstep/datasets/text/internal/replace_step.h"

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {

void RewrittenSize::refuse() const {
  throw DataError("the tokenizer's file makes a text of " + std::to_string(text_size_) +
                  " bytes longer than " + std::to_string(most_) + " bytes");
}

void append_replaced(std::string_view text, const ReplaceStep& step, const RewrittenSize& limit,
                     std::string& result) {
  size_t done = 0;
  for (size_t at = text.find(step.from); at != std::string_view::npos; at = text.find(step.from, done)) {
    result.append(text, done, at - done).append(step.to);
    limit.check(result.size());
    done = at + step.from.size();
  }
  result.append(text, done);
  limit.check(result.size());
}

}  // namespace lockstep
