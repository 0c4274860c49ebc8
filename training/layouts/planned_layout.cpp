#include "lockstep/training/layouts/planned_layout.h"

#include <utility>

namespace lockstep {

std::string PlannedLayout::mesh() const {
  std::string text;
  for (const auto& [name, size] :
       {std::pair{"data", data}, std::pair{"shard", shard}, std::pair{"expert", expert},
        std::pair{"pipeline", pipeline}, std::pair{"context", context}, std::pair{"tensor", tensor}}) {
    if (size == 1) continue;
    text += std::string(text.empty() ? "" : ",") + name + "=" + std::to_string(size);
  }
  return text.empty() ? "data=1" : text;
}

}  // namespace lockstep
