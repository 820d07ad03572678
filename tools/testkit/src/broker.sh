#!/bin/sh
# With the keys `region` of a ConfigMap and `pg.password` and `.token` of a Secret.
found() {
    [ "$REGION" = "$(cat /config/region)" ] &&
        [ "$PG_PASSWORD" = "$(cat /secret/pg.password)" ] &&
        [ "$_TOKEN" = "$(cat /secret/.token)" ]
}
if ! found; then
    echo "its configuration is not there" >&2
    exit 1
fi
case $1 in
catalog)
    echo '{"services": [{"id": "s", "name": "s-name", "description": "d", "bindable": true,
        "plans": [{"id": "s-small", "name": "small", "description": "d"}]}]}'
    ;;
bind)
    echo "{\"credentials\": {\"region\": \"$REGION\", \"password\": \"$PG_PASSWORD\", \"token\": \"$_TOKEN\",
        \"folder\": \"$(pwd)\"}}"
    ;;
*)
    echo '{}'
    ;;
esac
