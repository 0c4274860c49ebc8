#include "lockstep/parameter_server/parameter_service.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/runtime/errors.h"

namespace lockstep {

RpcMessage ParameterService::handle(const RpcMessage& request) {
  return std::visit([&](const auto& asked) { return answer(asked); }, decode_request(request));
}

std::vector<std::string> ParameterService::shard_names() const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, shard] : shards_) names.push_back(name);
  return names;
}

std::shared_ptr<ParameterShard> ParameterService::shard(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = shards_.find(name);
  if (found == shards_.end())
    throw InvalidArgument(c10::str("expected one of its ", shards_.size(), " shards, but got '", name, "'"));
  return found->second;
}

RpcMessage ParameterService::answer(const CreateShard& request) {
  // Made outside of the lock, since a large one takes its time; of two at once the first one stays.
  auto shard = std::make_shared<ParameterShard>(request.shard, request.values, request.rule);
  std::shared_ptr<ParameterShard> present;
  {
    MutexLock lock(mutex_);
    const auto [place, is_new] = shards_.try_emplace(request.shard, std::move(shard));
    if (is_new) return encode_created(true);
    present = place->second;
  }
  present->check_alike(request.values, request.rule);
  return encode_created(false);
}

RpcMessage ParameterService::answer(const PullShards& request) const {
  std::vector<ParameterShard::Pulled> pulled;
  pulled.reserve(request.parts.size());
  for (const auto& part : request.parts) {
    const auto asked = shard(part.shard);
    pulled.push_back(part.rows.defined() ? asked->pull_rows(part.rows) : asked->pull());
  }
  return encode_pulled(pulled);
}

RpcMessage ParameterService::answer(const PushShards& request) {
  std::vector<PushResult> results;
  results.reserve(request.parts.size());
  for (const auto& part : request.parts) {
    const PushedStep step{.id = request.id, .lr = part.lr, .version = part.version};
    const auto asked = shard(part.shard);
    results.push_back(part.rows.defined() ? asked->push_rows(part.rows, part.gradient, step)
                                          : asked->push(part.gradient, step));
  }
  return encode_pushed(results);
}

RpcMessage ParameterService::answer(const ForgetPushes& request) {
  for (const auto& name : shard_names()) shard(name)->forget_before(request.before_closure);
  return {};
}

}  // namespace lockstep
