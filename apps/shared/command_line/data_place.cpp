#include "lockstep/apps/shared/command_line/data_place.h"

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {

void refuse_credentials(const std::string& flag, const std::string& place) {
  const size_t scheme = place.find("://");
  if (scheme == std::string::npos) return;
  const size_t begin = scheme + 3;
  if (place.substr(begin, place.find('/', begin) - begin).find('@') == std::string::npos) return;
  throw UsageError("--" + flag +
                   ": expected URIs without credentials, which would be recorded; set AWS_ACCESS_KEY_ID and "
                   "AWS_SECRET_ACCESS_KEY in the environment instead");
}

}  // namespace lockstep::apps
