// Chat templates, by name, for checkpoints that have none. They were written for this project. For conversations
// without tools, each writes the same text as the template of the models after which it is named.
#include "model/text/chat/chat_template.h"

#include <algorithm>

namespace entrodraft::model {

namespace {

struct NamedChatTemplate {
    std::string_view name;
    std::string_view text;
};

constexpr NamedChatTemplate kNamedChatTemplates[] = {
    {"chatml", R"jinja(
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})jinja"},
    {"llama-2", R"jinja(
{%- set system = messages[0].content if messages[0].role == 'system' else none %}
{%- for message in (messages if system is none else messages[1:]) %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('user and assistant must take turns, the user first') }}
{%- endif %}
{%- if message.role == 'user' %}
{%- set head = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' if loop.first and system is not none else '' %}
{{- bos_token + '[INST] ' + (head + message.content) | trim + ' [/INST]' }}
{%- else %}
{{- ' ' + message.content | trim + ' ' + eos_token }}
{%- endif %}
{%- endfor %})jinja"},
    {"llama-3", R"jinja({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})jinja"},
    {"mistral-v1", R"jinja({{- bos_token }}
{%- set system = messages[0].content if messages[0].role == 'system' else none %}
{%- for message in (messages if system is none else messages[1:]) %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('user and assistant must take turns, the user first') }}
{%- endif %}
{%- if message.role == 'user' %}
{{- ' [INST] ' + (system + '\n\n' if loop.first and system is not none else '') + message.content + ' [/INST]' }}
{%- else %}
{{- ' ' + message.content + eos_token }}
{%- endif %}
{%- endfor %})jinja"},
    {"mistral-v3", R"jinja({{- bos_token }}
{%- set system = messages[0].content if messages[0].role == 'system' else none %}
{%- for message in (messages if system is none else messages[1:]) %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('user and assistant must take turns, the user first') }}
{%- endif %}
{%- if message.role == 'user' %}
{{- '[INST] ' + (system + '\n\n' if loop.last and system is not none else '') + message.content + '[/INST]' }}
{%- else %}
{{- ' ' + message.content | trim + eos_token }}
{%- endif %}
{%- endfor %})jinja"},
    {"gemma", R"jinja({{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}
{{- raise_exception('there is no system message; put it into the user\'s') }}
{%- elif (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('user and assistant must take turns, the user first') }}
{%- endif %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
{{- message.content | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})jinja"},
    {"zephyr", R"jinja(
{%- for message in messages %}
{{- '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})jinja"},
    {"phi-3", R"jinja(
{%- for message in messages %}
{{- '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})jinja"},
    {"vicuna", R"jinja({{- bos_token }}
{%- set has_system = messages[0].role == 'system' %}
{{- messages[0].content if has_system else 'A chat between a curious user and an artificial intelligence assistant. '
    'The assistant gives helpful, detailed, and polite answers to the user\'s questions.' }}
{{- ' ' }}
{%- for message in (messages[1:] if has_system else messages) %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('user and assistant must take turns, the user first') }}
{%- endif %}
{{- 'USER: ' + message.content + ' ' if message.role == 'user' else 'ASSISTANT: ' + message.content + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})jinja"},
};

} // namespace

std::vector<std::string_view> chat_template_names() {
    std::vector<std::string_view> names;
    for (const NamedChatTemplate& one : kNamedChatTemplates)
        names.push_back(one.name);
    return names;
}

std::optional<std::string_view> named_chat_template(std::string_view name) {
    const auto found = std::ranges::find(kNamedChatTemplates, name, &NamedChatTemplate::name);
    return found == std::end(kNamedChatTemplates) ? std::nullopt : std::optional(found->text);
}

} // namespace entrodraft::model
