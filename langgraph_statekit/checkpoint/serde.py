"""placeholder until the serializer lands"""

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer


class StatekitSerializer(JsonPlusSerializer):
    """JsonPlusSerializer."""
